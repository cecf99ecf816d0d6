"""Layers inside of a template that are called on what has no rows, or are never called: as on one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_training, mean_squared, random_rows
from keras import layers, ops

X, Y = random_rows(18, 4), random_rows(18, 2, seed=1)


class AddsTo(layers.Layer):
    """Adds to all rows what a layer gives for something that is the same for all; and adds a loss of the rows."""

    def __init__(self, inner, shared):
        super().__init__()
        self.inner, self.shared = inner, shared

    def build(self, shape):
        self.query = self.add_weight(shape=(3, 4), name="query")
        self.inner.build((3, 4))

    def call(self, x):
        x = x + ops.mean(self.inner(self.shared(self)) + self.query, axis=0)
        self.add_loss(0.01 * ops.sum(ops.square(x)))
        return x


def test_layers_are_called_on_constants_and_weights_as_on_one_device():
    ids, floats, variable = tf.range(3), ops.ones((3, 4)), tf.Variable(np.ones((3, 4), "float32"), trainable=False)
    sparse = tf.sparse.from_dense(np.eye(3, 4, dtype="float32"))

    def network():
        x = inputs = keras.Input((4,))
        for inner, shared in [
            (layers.Embedding(5, 4), lambda _: ids),
            (layers.Dense(4), lambda _: floats),
            (layers.Dense(4), lambda _: variable),
            (layers.Dense(4), lambda _: sparse),
            (layers.Dense(4), lambda layer: layer.query),
            (layers.Dense(4), lambda layer: layer.query.value),
        ]:
            x = AddsTo(inner, shared)(layers.Dense(4, activation="tanh")(x))
        heads = layers.MultiHeadAttention(1, 4)
        causal = tf.constant(np.tril(np.ones((4, 4), bool)))
        rows = layers.Reshape((4, 1))(x)
        return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(heads(rows, rows, attention_mask=causal))))

    assert_same_training(network, X, Y, compile=mean_squared, only_fit=True)


class Optional(keras.Model):
    """Has layers that it never calls, so that they are not built."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.unused = [
            layers.Embedding(9, 4),
            layers.ReversibleEmbedding(9, 4),
            layers.BatchNormalization(synchronized=True),
            layers.Bidirectional(layers.LSTM(3)),
            layers.MultiHeadAttention(2, 2),
            layers.SpectralNormalization(layers.Dense(2)),
            layers.TextVectorization(),
            keras.Sequential([layers.Embedding(9, 4), layers.Dense(2)]),
        ]

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_layers_that_are_never_called_are_nothing(run_eagerly):
    def network():
        model = Optional()
        model.build((None, 4))
        return model

    assert_same_training(network, X, Y, compile=lambda: {**mean_squared(), "run_eagerly": run_eagerly})
