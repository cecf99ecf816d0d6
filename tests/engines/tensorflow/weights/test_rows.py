"""Rows of a gradient add up as on one device: optimizers that square or clip them tell the difference."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same_training, random_ids, random_rows
from keras import layers, ops, optimizers
from optimizer_cases import COMMON, OTHERS

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights import embedding_tables

IDS, Y = random_ids(18, 6, below=9), random_rows(18, 2, seed=1)
WORDS = np.array([[f"word {number}" for number in row] for row in IDS])


class Different(layers.Layer):
    """Looks each of the ids up once."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(9, 4)

    def call(self, ids):
        different, places = tf.unique(tf.reshape(ids, [-1]))
        return tf.reshape(tf.gather(self.table(different), places), [-1, 6, 4])


class Positions(layers.Layer):
    """Rows for the places in a row, whose number is open in the trace."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(6, 4)

    def call(self, ids):
        return self.table(tf.range(tf.shape(ids)[1]))


def reader():
    """All ways to look rows up, in tables that are sent: beside the usual one, by sparse inputs of a Dense."""
    ids, words = keras.Input((None,), dtype="int32"), keras.Input((6,), dtype="string")
    many = layers.StringLookup(vocabulary=[f"word {n}" for n in range(9)], output_mode="multi_hot", sparse=True)(words)
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(ids) + Different()(ids) + Positions()(ids))
    return keras.Model([ids, words], layers.Dense(2)(layers.Concatenate()([x, layers.Dense(3)(many)])))


CLIPPED = ("SGD", {"learning_rate": 0.1, "clipnorm": 0.01})
CHOSEN = [CLIPPED, COMMON[1]]


@pytest.mark.parametrize(
    ("name", "arguments"), [case if case in CHOSEN else soak(*case) for case in [CLIPPED, *COMMON, *OTHERS]]
)
def test_rows_of_slices_are_summed_as_on_one_device(name, arguments):
    def compile():
        return {"optimizer": getattr(optimizers, name)(**arguments), "loss": "mse"}

    assert_same_training(reader, [IDS, WORDS], Y, compile=compile, only_fit=True)


class Multiplies(layers.Layer):
    """A product of sparse inputs with a weight of its own, and with the same one again."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="ones")

    def compute_output_shape(self, shape):
        return (shape[0], 3)

    def call(self, x):
        x = tf.cast(x, "float32")
        return tf.sparse.sparse_dense_matmul(x, self.kernel) + ops.matmul(x, 2.0 * self.kernel)


class Counts(layers.Layer):
    """Takes each different word once, as often as it is there."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(9, 4)

    def call(self, ids):
        different, places, counts = tf.unique_with_counts(tf.reshape(ids, [-1]))
        rows = self.table(different) / tf.cast(counts, "float32")[:, None] ** 0
        return tf.reduce_mean(tf.reshape(tf.gather(rows, places), [-1, 6, 4]), axis=1)


@pytest.mark.parametrize("optimizer", [lambda: optimizers.Adam(0.1), lambda: optimizers.Adagrad(0.1, clipnorm=0.01)])
def test_rows_of_other_kinds_of_sparse_products_as_well(optimizer):
    def build():
        ids = keras.Input((6,), dtype="int32")
        hashed = layers.Hashing(7, output_mode="multi_hot", sparse=True)(ids)
        counted = layers.IntegerLookup(vocabulary=[*range(9)], output_mode="count", sparse=True)(ids)
        x = layers.Concatenate()([layers.Dense(3)(hashed), Multiplies()(counted), Counts()(ids)])
        return keras.Model(ids, layers.Dense(2)(x))

    assert_same_training(build, IDS, Y, compile=lambda: {"optimizer": optimizer(), "loss": "mse"}, only_fit=True)


@pytest.mark.parametrize("eagerly", [False, True])
def test_rows_of_tables_that_stay_with_their_owner_as_well(monkeypatch, eagerly):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1)

    def build():
        ids = keras.Input((6,), dtype="int32")
        x = layers.Embedding(9, 4)(ids) + Different()(ids) + Positions()(ids)
        return keras.Model(ids, layers.Dense(2)(layers.Flatten()(x)))

    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse", "run_eagerly": eagerly}

    assert_same_training(build, IDS, Y, compile=compile, only_fit=True)


def test_it_is_refused_by_name_to_take_rows_of_which_one_device_would_have_others():
    class TwoWays(Different):
        def call(self, ids):
            return super().call(ids) + self.table(ids)

    ids = keras.Input((6,), dtype="int32")
    parallel = multi_gpu_model(keras.Model(ids, layers.Dense(2)(layers.Flatten()(TwoWays()(ids)))), gpus=2)
    assert parallel(IDS).shape == (18, 2)  # which takes no gradient
    parallel.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"looked up in one way: .* Received: a weight with rows of shape \(4,\)"):
        parallel.fit(IDS, Y, verbose=0)
