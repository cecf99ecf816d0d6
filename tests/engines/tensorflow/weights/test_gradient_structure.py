"""Weights that no gradient reaches get none, as on one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from multigpu import multi_gpu_model


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


def two_heads():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,))
    x = layers.Dense(4, activation="tanh")(inputs)
    return keras.Model(inputs, [layers.Dense(2)(x), layers.Dense(2)(x)])


@pytest.mark.parametrize("order", [(0, 1), (1, 0, 1)])
def test_each_gradient_of_a_persistent_tape_has_none_where_one_device_has_none(order):
    x = tf.ones((7, 5))

    def pattern(model):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean(y**2) for y in model(x, training=True)]
        gradients = [tape.gradient(losses[head], model.trainable_variables) for head in order]
        patterns.append([[each is None for each in of_loss] for of_loss in gradients])
        return [each for of_loss in gradients for each in of_loss if each is not None]

    patterns = []
    one, parallel = (tf.function(pattern)(m) for m in (two_heads(), multi_gpu_model(two_heads(), gpus=3)))
    assert patterns[0] == patterns[1]
    assert sum(map(sum, patterns[0])) == 2 * len(order)
    for expected, given in zip(one, parallel, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
