"""Weights that no gradient reaches get none, as on one device."""

import keras
import numpy as np
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
