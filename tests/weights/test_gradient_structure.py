"""Weights whose gradient is rows are known before the gradient is."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from multigpu import multi_gpu_model
from multigpu.weights.gradient_structure import weights_with_rows

IDS = tf.constant([0, 2, 2])
LOOKED_UP = {
    "gather": lambda table: tf.gather(table, IDS),
    "cast, as in mixed precision": lambda table: tf.gather(tf.cast(table, tf.float16), IDS),
    "rows by their position": lambda table: tf.gather_nd(table, IDS[:, None]),
    "in a function": tf.function(lambda table: tf.gather(table, IDS)),
    "in a function in a function": tf.function(lambda table: tf.function(lambda: tf.gather(table, IDS))()),
    "compiled by XLA": tf.function(lambda table: tf.gather(table, IDS), jit_compile=True),
    "in a branch": lambda table: tf.cond(IDS[0] > 0, lambda: tf.gather(table, IDS), lambda: tf.zeros((3, 2))),
    "in a loop": lambda table: tf.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, x + tf.gather(table, IDS)), (0, tf.zeros((3, 2)))
    )[1],
}


@pytest.mark.parametrize("how", LOOKED_UP)
def test_a_table_is_found_wherever_it_is_looked_up(how):
    specs = [tf.TensorSpec((2, 2)), tf.TensorSpec((4, 2))]
    function = tf.function(lambda w, table: [w @ w, LOOKED_UP[how](table)]).get_concrete_function(*specs)
    assert weights_with_rows(function, 2) == [1]


def test_a_model_that_has_no_gradient_predicts():
    @tf.RegisterGradient("NeverAsked")
    def never(op, upstream):
        raise AssertionError

    class Rounds(layers.Layer):
        def call(self, x):
            with tf.compat.v1.get_default_graph().gradient_override_map({"Round": "NeverAsked"}):
                return tf.round(x)

    inputs = keras.Input((3,), dtype="int32")
    template = keras.Model(inputs, Rounds()(layers.Embedding(9, 2)(inputs)))
    x = np.arange(9).reshape(3, 3)
    expected = template.predict(x, verbose=0)
    np.testing.assert_array_equal(multi_gpu_model(template, gpus=2).predict(x, verbose=0), expected)
