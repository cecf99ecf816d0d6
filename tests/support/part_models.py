"""Templates with parts, and the groups of devices that they are tested on."""

import contextlib

import keras
import tensorflow as tf
from equality import FLOAT32, assert_same_numbers, random_ids, random_rows, train
from keras import layers

import multigpu

LAYOUTS = {
    "two groups": lambda parts: [[f"CPU:{1 + parts * group + part}" for part in range(parts)] for group in range(2)],
    "four slices": lambda parts: [[f"CPU:{part}" for part in range(parts)]] * 4,
}


def nowhere(device):
    """`on_device` for the twin on one device."""
    return contextlib.nullcontext()


def two_parts(on):
    """Dense parts with noise, batch statistics over all slices, an activation whose gradient is not TensorFlow's."""
    x = keras.Input((3,))
    with on("GPU:0"):
        h = layers.Dense(6, activation="silu")(x)
        h = layers.BatchNormalization(synchronized=True)(h)
    with on("GPU:1"):
        h = layers.Dense(5, activation="tanh", kernel_regularizer="l2")(layers.Dropout(0.2)(h))
    return keras.Model(x, layers.Dense(2)(h))


def masked_tower(on):
    """A mask that crosses devices, loops, losses that layers add, a model as a part, operations without a layer."""
    ids = keras.Input((6,), dtype="int32")
    with on("GPU:0"):
        x = layers.Embedding(9, 4, mask_zero=True)(ids)
    with on("GPU:1"):
        x = layers.SimpleRNN(4, activity_regularizer=keras.regularizers.L2(0.1))(x)
        x = keras.Sequential([keras.Input((4,)), layers.Dense(4, "tanh", kernel_regularizer="l2")])(x)
    with on("GPU:2"):
        x = layers.BatchNormalization(synchronized=True)(x)
        x = keras.ops.concatenate([x, x * 2], axis=-1)
    return keras.Model(ids, layers.Dense(2)(x))


def shared_encoder(on, encode=lambda: layers.LSTM(4, name="encode")):
    """Two sequences encoded by one layer, each in a part of its own, put together on the host."""
    first, second = keras.Input((5, 3)), keras.Input((5, 3))
    encode = encode()
    with on("GPU:1"):
        a = encode(first)
    with on("GPU:2"):
        b = encode(second)
    with on("CPU:0"):
        both = layers.concatenate([a, b])
    return keras.Model([first, second], layers.Dense(2, name="decide")(both))


def there_and_back(on):
    """A part that is used before and after another one; a layer of each twice, one in a model that is built there."""
    x, inner = keras.Input((3,)), keras.Input((3,))
    again = layers.Dense(3, activation="tanh")
    with on("GPU:0"):
        h = again(x)
    with on("GPU:1"):
        model = keras.Model(inner, layers.Dense(3, activation="relu")(keras.ops.square(inner)))
        h = model(h)
    with on("GPU:0"):
        return keras.Model(x, layers.Dense(2)(again(model(h))))


class OfBatch(keras.Layer):
    """Adds losses that are no mean over rows, and counts what it saw."""

    def build(self, shape):
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.add_loss(tf.reduce_max(x) ** 2)
        self.add_loss(0.1 * tf.reduce_sum(x**2))
        self.seen.assign_add(tf.reduce_sum(x))
        return x


def with_losses(on):
    x = keras.Input((3,))
    with on("GPU:0"):
        h = OfBatch()(layers.Dense(4)(x))
    with on("GPU:1"):
        h = OfBatch()(layers.Dense(4)(h))
        return keras.Model(x, layers.Dense(2)(h))


def looked_up(on):
    """Numbers, looked up in a table that is no weight."""
    numbers = keras.Input((2,), dtype="int64")
    with on("GPU:0"):
        ids = layers.IntegerLookup(vocabulary=[1, 3, 5])(numbers)
        h = layers.Flatten()(layers.Embedding(5, 4)(ids))
    with on("GPU:1"):
        return keras.Model(numbers, layers.Dense(2)(layers.Dropout(0.5)(h)))


class Halves(keras.Model):
    """A model of one's own that says in its call where its parts run, and uses operations of TensorFlow there."""

    def __init__(self, on):
        super().__init__()
        self.on = on
        self.first, self.second = layers.Dense(4, name="first"), layers.Dense(2, name="second")

    def call(self, x):
        with self.on("GPU:0"):
            x = tf.tanh(self.first(x))
        with self.on("GPU:1"):
            return self.second(tf.nn.silu(x))


def halves(on):
    model = Halves(on)
    model(random_rows(2, 3))
    return model


# batches of 8, 8 and 1: then all slices but one stand by
X, Y = random_rows(17, 3), random_rows(17, 2, seed=1)
SEQUENCES = [random_rows(17, 5, 3), random_rows(17, 5, 3, seed=1)]
MODELS = {
    "two parts": (two_parts, X, 2),
    "masks, loops and operations": (masked_tower, random_ids(17, 6, below=9), 3),
    "shared weights": (lambda on: shared_encoder(on, lambda: layers.SimpleRNN(4, name="encode")), SEQUENCES, 2),
    "there and back": (there_and_back, X, 2),
    "losses and state of the batch": (with_losses, X, 2),
    "a model of one's own": (halves, X, 2),
    "a table": (looked_up, random_ids(17, 2, below=7).astype("int64"), 2),
}


def sgd():
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
    return {"optimizer": optimizer, "loss": "mse"}


def assert_same_in_groups(build, x, gpus, compile=sgd, tolerance=FLOAT32, y=Y, **fit):
    """Trains twins, one plain and one in each of several lists of groups, and compares all numbers."""
    _, plain = train(lambda: build(nowhere), x, y, compile=compile, gpus=None, **fit)
    for groups in gpus:
        _, grouped = train(lambda: build(multigpu.on_device), x, y, compile=compile, gpus=groups, **fit)
        assert_same_numbers(grouped, plain, **tolerance)
