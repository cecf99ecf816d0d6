"""Losses that layers add are those of one device, whether they are means over rows or sums over them."""

import keras
import pytest
from equality import assert_same_training, mean_squared, random_ids, random_rows
from keras import ops

X, Y = random_rows(21, 3), random_rows(21, 2, seed=1)


class Adds(keras.layers.Layer):
    """Adds a loss of its inputs, and of a weight of its own."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        self.add_loss(self.loss(x * self.scale, self.scale))
        return x * self.scale


LOSSES = {
    "mean over rows": lambda x, w: ops.mean(ops.square(x)),
    "sum over rows": lambda x, w: 0.01 * ops.sum(ops.square(x)),
    "sum over columns, mean over rows": lambda x, w: ops.mean(ops.sum(ops.square(x), axis=-1)),
    "sum divided by rows": lambda x, w: ops.sum(ops.abs(x)) / ops.cast(ops.shape(x)[0], "float32"),
    "of weights only": lambda x, w: ops.sum(ops.square(w)),
    "mean with noise": lambda x, w: ops.mean(ops.square(x)) + 0.0 * ops.mean(keras.random.normal(ops.shape(x))),
    "sum with noise": lambda x, w: ops.sum(ops.square(x) * (0.01 + 0.0 * keras.random.normal(ops.shape(x)))),
}


def network(loss, mean_layer=False):
    inputs = keras.Input((3,))
    x = keras.layers.Dense(4, activation="tanh")(inputs)
    x = Adds(loss)(x)
    if mean_layer:
        x = keras.layers.Dense(4, activity_regularizer="l2")(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("gpus", [2, 8])
def test_an_added_loss_is_that_of_one_device(kind, gpus):
    # 21 rows in batches of 8: the last has 5, so that on 8 devices three replicas stand by
    assert_same_training(lambda: network(LOSSES[kind]), X, Y, compile=mean_squared, gpus=gpus)


def test_sums_and_means_in_one_model_are_told_apart():
    build = lambda: network(LOSSES["sum over rows"], mean_layer=True)  # noqa: E731  # it is built twice
    assert_same_training(build, X, Y, compile=mean_squared, gpus=3)


def test_a_sum_is_recognised_behind_whole_numbers():
    def build():
        inputs = keras.Input((5,), dtype="int32")
        x = keras.layers.Flatten()(keras.layers.Embedding(7, 3)(inputs))
        return keras.Model(inputs, keras.layers.Dense(2)(Adds(LOSSES["sum over rows"])(x)))

    assert_same_training(build, random_ids(21, 5, below=7), Y, compile=mean_squared, gpus=3)


def test_a_sum_is_recognised_when_run_eagerly():
    def compile_eagerly():
        return {**mean_squared(), "run_eagerly": True}

    assert_same_training(lambda: network(LOSSES["sum over rows"]), X, Y, compile=compile_eagerly, gpus=3)
