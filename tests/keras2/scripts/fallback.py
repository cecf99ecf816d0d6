# In the style of the help page: several GPUs, or else one.
import sys

import keras.backend.tensorflow_backend as KTF
import numpy as np
from keras.engine.topology import Layer
from keras.layers import Input, Lambda
from keras.layers.advanced_activations import LeakyReLU
from keras.layers.core import Activation, Dense
from keras.layers.merge import concatenate
from keras.models import Model
from keras.optimizers import Adam
from keras.utils.multi_gpu_utils import multi_gpu_model


class Scale(Layer):
    def __init__(self, **kwargs):
        super(Scale, self).__init__(**kwargs)

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[1],), initializer="ones", trainable=True)
        super(Scale, self).build(input_shape)

    def call(self, x):
        return x * self.scale

    def compute_output_shape(self, input_shape):
        return input_shape


def batches(size):
    while True:
        x = np.random.random((size, 4))
        yield [x, x], KTF.eval(KTF.cast(x.sum(axis=1) > 2, "float32"))


a = Input(shape=(4,))
b = Input(shape=(4,))
h = concatenate([Scale()(a), Lambda(lambda t: t * 2)(b)])
h = LeakyReLU(alpha=0.1)(Dense(8)(h))
model = Model(input=[a, b], output=Activation("sigmoid")(Dense(1)(h)))

try:
    parallel_model = multi_gpu_model(model, cpu_relocation=True)
    print("Training using multiple GPUs..")
except ValueError:
    parallel_model = model
    print("Training using single GPU or CPU..")

parallel_model.compile(loss="binary_crossentropy", optimizer=Adam(lr=0.01, epsilon=None, decay=0.0), metrics=["acc"])
history = parallel_model.fit_generator(
    batches(8),
    steps_per_epoch=3,
    epochs=2,
    verbose=0,
    class_weight={0: 1.0, 1: 2.0},
    validation_data=batches(8),
    validation_steps=1,
)
print(sorted(history.history.keys()))
print(parallel_model.metrics_names, int(np.sum([KTF.count_params(p) for p in set(model.trainable_weights)])))
print("lr %.3f" % KTF.get_value(parallel_model.optimizer.lr))
print(
    len(parallel_model.evaluate_generator(batches(8), steps=np.ceil(1.5))), parallel_model.predict_generator(batches(8), 2).shape
)
model.save_weights("w.h5")
before = model.get_weights()
model.load_weights("w.h5", by_name=True)
assert all((one == two).all() for one, two in zip(before, model.get_weights()))
sys.exit(3)
