# In the style of the answers on saving: a class that saves the template, and tf.keras.
import os

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras.callbacks import Callback, ModelCheckpoint, ReduceLROnPlateau
from tensorflow.keras.layers import Dense
from tensorflow.keras.models import Sequential, load_model
from tensorflow.keras.utils import Sequence, multi_gpu_model
from tensorflow.python.client import device_lib
from tensorflow.python.keras.models import Model
from tensorflow.python.keras.utils import multi_gpu_model as twin
from tensorflow.python.keras.utils.multi_gpu_utils import multi_gpu_model as other_twin

assert multi_gpu_model is twin is other_twin is tf.keras.utils.multi_gpu_model
tf.compat.v1.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)
tf.set_random_seed(1)
print(len(K.tensorflow_backend._get_available_gpus()), "GPUs;", len(device_lib.list_local_devices()) > 0)


class ModelMGPU(Model):
    def __init__(self, ser_model, gpus):
        pmodel = multi_gpu_model(ser_model, gpus)
        self.__dict__.update(pmodel.__dict__)
        self._smodel = ser_model

    def __getattribute__(self, attrname):
        if "load" in attrname or "save" in attrname:
            return getattr(self._smodel, attrname)
        return super(ModelMGPU, self).__getattribute__(attrname)


class ParallelModelCheckpoint(ModelCheckpoint):
    def __init__(
        self,
        model,
        filepath,
        monitor="val_loss",
        verbose=0,
        save_best_only=False,
        save_weights_only=False,
        mode="auto",
        period=1,
    ):
        self.single_model = model
        super(ParallelModelCheckpoint, self).__init__(
            filepath, monitor, verbose, save_best_only, save_weights_only, mode, period
        )

    def set_model(self, model):
        super(ParallelModelCheckpoint, self).set_model(self.single_model)


class Batches(Sequence):
    def __init__(self, x, y, batch_size):
        self.x, self.y, self.batch_size = x, y, batch_size

    def __len__(self):
        return int(np.ceil(len(self.x) / float(self.batch_size)))

    def __getitem__(self, idx):
        rows = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
        return self.x[rows], self.y[rows]


class Own(Callback):
    def __init__(self, org_model):
        self.org_model = org_model

    def on_epoch_end(self, epoch, logs={}):
        model_before = self.model
        self.model = self.org_model
        K.set_value(model_before.optimizer.lr, 0.5 * K.get_value(model_before.optimizer.lr))
        self.model = model_before
        assert [data.shape for data in self.validation_data] == [(22, 3), (22,), (22,)]


x = np.random.random((22, 3))
y = np.random.randint(0, 3, 22)
model = Sequential([Dense(8, input_dim=3, activation="relu"), Dense(3, activation="softmax")])
parallel = ModelMGPU(model, 2)
parallel.compile(tf.keras.optimizers.SGD(lr=0.1, decay=0.1), "sparse_categorical_crossentropy", ["accuracy"])
history = parallel.fit_generator(
    Batches(x, y, 8),
    epochs=2,
    verbose=1,
    use_multiprocessing=True,
    workers=2,
    validation_data=(x, y),
    callbacks=[
        ParallelModelCheckpoint(model, "best.hdf5", "val_acc", save_best_only=True),
        ReduceLROnPlateau(monitor="val_acc", epsilon=0.1, patience=9),
        Own(model),
    ],
)
assert history.history["acc"] == history.history["accuracy"]
parallel.save("parallel.model")
assert sorted(os.listdir(".")) == ["best.hdf5", "parallel.model"]
loaded = load_model("parallel.model")
print((loaded.predict_classes(x, verbose=0) == parallel.predict(x).argmax(axis=-1)).all())
print("lr", ["%.3f" % lr for lr in history.history["lr"]])
