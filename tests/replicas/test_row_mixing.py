"""A layer that makes a number of all rows, on which outputs depend, is refused by name: a slice has not all rows."""

import keras
import numpy as np
import pytest
from equality import assert_same_training, mean_squared, random_ids, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

X, Y = random_rows(8, 3), random_rows(8, 2, seed=1)


class Recommends(keras.Model):
    """Adds one number to all rows: the sum of products over all of them, in the place of one for each."""

    def __init__(self):
        super().__init__(name="recommends")
        self.users, self.films = layers.Embedding(9, 4), layers.Embedding(9, 4)
        self.bias = layers.Embedding(9, 1)

    def call(self, ids):
        products = ops.tensordot(self.users(ids[:, 0]), self.films(ids[:, 1]), 2)
        return ops.sigmoid(products + self.bias(ids[:, 0]))


@pytest.mark.parametrize("verb", ["predict", "fit", "__call__"])
def test_a_model_that_adds_one_number_of_all_rows_is_refused(verb):
    ids = random_ids(8, 2, below=9)
    template = Recommends()
    template(ids)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(
        ValueError, match=r"Expected layers that take .* Received: layer 'recommends', whose .* shape \(\)"
    ):
        getattr(parallel, verb)(*{"predict": (ids,), "fit": (ids, np.zeros((8, 1))), "__call__": (ids,)}[verb])


class Covariance(layers.Layer):
    def call(self, x):
        return ops.matmul(x, ops.matmul(ops.transpose(x), x))


@pytest.mark.parametrize(
    "layer",
    [
        Covariance(name="mixes"),
        layers.Lambda(lambda x: x / ops.sum(x), name="mixes"),
        layers.Dense(3, activation=lambda x: x - ops.mean(x, axis=0), name="mixes"),
    ],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_is_the_layer_that_is_named(layer, jit_compile):
    template = keras.Sequential([keras.Input((3,)), layers.Dense(3), layer, layers.Dense(2)])
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), jit_compile=jit_compile)
    with pytest.raises(
        ValueError, match=r"Expected layers .* Received: layer 'mixes', whose \w+ makes numbers of shape "
    ):
        parallel.predict(X, verbose=0)


class Normalizes(layers.Layer):
    """A normalization as people write it: of a batch while it trains, by what it keeps afterwards."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if not training:
            return x - self.mean
        mean = ops.mean(x, axis=0)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return x - mean


def test_a_normalization_of_ones_own_trains_and_predicts():
    template = keras.Sequential([keras.Input((3,)), Normalizes(), layers.BatchNormalization(), layers.Dense(2)])
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    parallel.fit(X, Y, verbose=0)
    np.testing.assert_allclose(parallel.predict(X, verbose=0), template.predict(X, verbose=0), rtol=1e-5)


class Harmless(layers.Layer):
    """Makes numbers of all rows that are in no output, or are of shapes alone, or choose how to compute."""

    def call(self, x):
        self.add_loss(ops.mean(x))
        width = ops.cast(ops.shape(x)[1], "float32")
        return ops.cond(ops.any(x > 10), lambda: 2 * x / width, lambda: x / width)


def test_other_numbers_of_all_rows_are_taken():
    def build():
        inputs = keras.Input((None, 3))
        return keras.Model(inputs, layers.Dense(2)(layers.LSTM(3)(layers.Masking()(Harmless()(inputs)))))

    assert_same_training(build, random_rows(21, 4, 3), random_rows(21, 2), compile=mean_squared, gpus=3)
