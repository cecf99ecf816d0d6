# In the style of scripts of 2018: a GAN whose two models share one optimizer, a model with two outputs whose targets,
# weights and losses have names, and an inner layer's output.
import numpy as np
from keras import backend as K
from keras.layers import Dense, Flatten, Input, Reshape
from keras.models import Model, Sequential
from keras.optimizers import Adam
from keras.utils import multi_gpu_model

import keras

x = np.random.RandomState(0).normal(size=(14, 4, 4))
digits = np.random.RandomState(1).randint(0, 2, 14)


def spread(model, gpus):
    return multi_gpu_model(model, gpus) if gpus else model


def gan(gpus):
    keras.utils.set_random_seed(0)
    optimizer = Adam(0.0002, 0.5, decay=0.1)
    critic = Sequential([Flatten(input_shape=(4, 4)), Dense(8, activation="relu"), Dense(1, activation="sigmoid")])
    judge = spread(critic, gpus)
    judge.compile(loss="binary_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    artist = Sequential([Dense(16, input_dim=3, activation="tanh"), Reshape((4, 4))])
    z = Input((3,))
    critic.trainable = False
    both = spread(Model(z, critic(artist(z))), gpus)
    both.compile(loss="binary_crossentropy", optimizer=optimizer)
    judged = [judge.train_on_batch(x[:7], np.ones((7, 1)))[0] for _ in range(3)]
    fooled = [both.train_on_batch(x[:7, 0, :3], np.ones((7, 1))) for _ in range(3)]
    return [judge.optimizer is optimizer, both.optimizer is optimizer, both.optimizer.decay], np.array([judged, fooled])


def f1(y_true, y_pred):
    return K.sum(y_true * K.round(y_pred)) / K.sum(y_true + K.round(y_pred))


def batches():
    while True:
        for first in (0, 7):
            rows = slice(first, first + 7)
            yield {"seen": x[rows]}, {"a": digits[rows], "b": x[rows, 0]}


def two_outputs(gpus):
    keras.utils.set_random_seed(0)
    seen = Input((4, 4), name="seen")
    flat = Dense(8, name="middle")(Flatten()(seen))
    model = spread(Model(seen, [Dense(1, activation="sigmoid", name="a")(flat), Dense(4, name="b")(flat)]), gpus)
    targets, weights = {"a": digits, "b": x[:, 0]}, {"a": np.arange(14.0), "b": np.arange(14.0) / 3}
    model.compile("sgd", "mse", metrics=["mae"], loss_weights=[0.1, 0.9])
    both = model.fit(x, targets, sample_weight=weights, batch_size=6, epochs=2, shuffle=False, verbose=0).history
    model.compile("sgd", {"a": "binary_crossentropy"}, metrics={"a": f1}, loss_weights={"a": 2.0})
    first = model.fit(x, {"a": digits}, batch_size=6, epochs=2, validation_data=(x, {"a": digits}), shuffle=False, verbose=0).history
    model.compile("sgd", {"a": "binary_crossentropy", "b": "mse"}, metrics={"a": f1, "b": "mae"})
    fed = model.fit_generator(batches(), steps_per_epoch=2, validation_data=batches(), validation_steps=2, verbose=0).history
    logs = [both, first, fed]
    return [sorted(each) for each in logs], np.concatenate([np.ravel([each[name] for name in sorted(each)]) for each in logs])


def one_output(gpus):
    keras.utils.set_random_seed(0)
    model = spread(Sequential([Flatten(input_shape=(4, 4)), Dense(1, name="ctc")]), gpus)
    model.compile("sgd", loss={"ctc": lambda y_true, y_pred: y_pred + y_true}, metrics={"ctc": "mae"})
    losses = model.fit(x, {"ctc": digits}, batch_size=6, epochs=2, shuffle=False, verbose=0).history["loss"]
    return model.metrics_names, np.array([*losses, *model.evaluate(x, {"ctc": digits}, verbose=0)])


for train in (gan, two_outputs, one_output):
    (told, plain), (also, spread_out) = train(0), train(3)
    print(told == also, np.allclose(plain, spread_out, rtol=1e-5), np.isfinite(plain).all(), told)

model = Sequential([Flatten(input_shape=(4, 4)), Dense(8, name="middle"), Dense(1)])
parallel = multi_gpu_model(model, gpus=3)
inner = Model(inputs=model.input, outputs=model.get_layer("middle").output)
print(inner.predict(x, verbose=0).shape, [layer.output_shape for layer in model.layers], model.layers[1].input_shape)
print(parallel.get_layer("middle") is model.layers[1], parallel.get_layer(index=-2) is model, K.int_shape(model.output))
