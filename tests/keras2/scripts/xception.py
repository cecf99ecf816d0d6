# In the style of the documentation of Keras 2.
import tensorflow as tf
from keras.applications import Xception
from keras.utils import multi_gpu_model
import numpy as np

num_samples = 8
height = 71
width = 71
num_classes = 10

# Instantiate the base model (or "template" model) on the CPU.
with tf.device("/cpu:0"):
    model = Xception(weights=None, input_shape=(height, width, 3), classes=num_classes)

parallel_model = multi_gpu_model(model, gpus=2)
parallel_model.compile(loss="categorical_crossentropy", optimizer="rmsprop")

# Generate dummy data.
x = np.random.random((num_samples, height, width, 3))
y = np.random.random((num_samples, num_classes))

parallel_model.fit(x, y, epochs=1, batch_size=8, verbose=2)

# Save model via the template model (which shares the same weights):
model.save("my_model.h5")
