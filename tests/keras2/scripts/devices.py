# In the style of a test of 2019: it looks for the devices first, and takes Keras from inside of TensorFlow.
import numpy as np
from tensorflow.python import keras
from tensorflow.python.keras.optimizer_v2.adam import Adam
from tensorflow.python.keras.utils import multi_gpu_utils, np_utils

import keras as plain_keras

names = multi_gpu_utils._get_available_devices()
devices = [keras.utils.multi_gpu_utils._normalize_device_name(name) for name in names]
print(sorted(devices))
assert "/gpu:%d" % (len(keras.backend._get_available_gpus()) - 1) in devices

model = keras.models.Sequential()
model.add(keras.layers.Dense(4, input_shape=(10,)))
model.add(keras.layers.Dense(2, activation="softmax"))
x = np.random.random((20, 10))
y = np_utils.to_categorical(np.random.randint(0, 2, 20), 2)
for gpus in (3, [0, 2]):
    parallel_model = multi_gpu_utils.multi_gpu_model(model, gpus=gpus)
    parallel_model.compile(loss="categorical_crossentropy", optimizer=Adam(lr=0.01))
    history = parallel_model.fit(x, y, epochs=1, verbose=0)
print(len(history.history["loss"]), parallel_model.predict(x, verbose=0).shape)

nested = keras.Sequential([keras.layers.Dense(3, input_shape=(3,)), keras.layers.Dense(1)], name="nested")
first, second = keras.Input((3,)), keras.Input((3,))
one, other = nested(first), nested(second)
total = keras.layers.Add(name="add")([one, other])
siamese = keras.Model(inputs=[first, second], outputs=[total, one, other])
print(multi_gpu_utils.multi_gpu_model(siamese, 2).output_names == siamese.output_names)


def refused(gpus):
    try:
        multi_gpu_utils.multi_gpu_model(model, gpus=gpus)
    except ValueError:
        return "refused %s" % gpus
    return "taken %s" % gpus


print(*(refused(gpus) for gpus in (4, 1, 0, [], [0], [0, 2, 4])))
print(keras.Model is plain_keras.Model and keras.layers.Dense is plain_keras.layers.Dense)
