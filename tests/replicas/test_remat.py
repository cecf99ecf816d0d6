"""Parts that a template asks to compute twice give the numbers of one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_training
from keras import layers


class Recomputed(layers.Layer):
    """Its weight is read by a function that is computed anew in the backward pass."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")

    def call(self, x):
        return keras.remat(lambda inputs: keras.ops.tanh(keras.ops.matmul(inputs, self.kernel)))(x)


def recomputed_net() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), Recomputed(), Recomputed(), layers.Dense(1)])


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_weights_that_are_read_in_a_recomputed_part_are_trained(run_eagerly):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(18, 4)).astype("float32"), random.normal(size=(18, 1)).astype("float32")

    def compile():
        return {"optimizer": keras.optimizers.Adam(0.05), "loss": "mse", "run_eagerly": run_eagerly}

    before = recomputed_net().get_weights()
    template = assert_same_training(recomputed_net, x, y, compile=compile)
    assert all(np.abs(a - b).max() > 0.01 for a, b in zip(template.get_weights(), before, strict=True))


def test_recomputing_outside_of_replicas_is_as_before():
    recompute = tf.recompute_grad
    random = np.random.default_rng(0)
    x, y = random.normal(size=(18, 4)), random.normal(size=(18, 1))
    assert_same_training(recomputed_net, x, y, compile=lambda: {"optimizer": "sgd", "loss": "mse"}, gpus=2)
    assert tf.recompute_grad is recompute
