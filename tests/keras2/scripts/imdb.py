# In the style of an example of 2018: a Sequential that begins with an Embedding, and a template that is found as a layer
# of the parallel model.
import numpy as np
from keras.callbacks import ModelCheckpoint
from keras.layers import LSTM, Dense, Embedding
from keras.models import Model, Sequential, clone_model, load_model
from keras.preprocessing import sequence
from keras.utils import multi_gpu_model

x = sequence.pad_sequences([[1, 2], [3], [4, 5, 6]] * 8, maxlen=5)
y = np.arange(24) % 2

model = Sequential()
model.add(Embedding(20, 8))
model.add(LSTM(4, dropout=0.2, recurrent_dropout=0.2))
model.add(Dense(1, activation="sigmoid", name="answer"))
fixed = Sequential([Embedding(20, 8, input_length=5), Dense(1)])
print(model.input_shape, fixed.output_shape)


class MultiGPUCheckpoint(ModelCheckpoint):
    def set_model(self, model):
        self.model = model.layers[-2]


parallel = multi_gpu_model(model, gpus=3)
parallel.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
parallel.fit(x, y, batch_size=7, epochs=1, verbose=0, callbacks=[MultiGPUCheckpoint("saved.h5")])
print(parallel.layers[-2] is model, parallel.get_layer(model.name) is model, parallel.get_layer(index=-2) is model)
print([layer.name for layer in parallel.layers][-1], [layer for layer in parallel.layers if isinstance(layer, Model)] == [model])
loaded = load_model("saved.h5")
print(type(loaded).__name__, np.array_equal(loaded.get_weights()[0], parallel.layers[-2].get_weights()[0]))
print(len(clone_model(parallel).layers))
