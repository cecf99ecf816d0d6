"""A direct call runs with the Python values that layers have now, as on one device, though it was traced before."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

x = random_rows(7, 4)


class Scales(layers.Layer):
    def __init__(self):
        super().__init__()
        self.rate, self.shift, self.function, self.traced = 1.0, tf.constant(0.5), ops.tanh, 0

    def call(self, x):
        self.traced += 1
        self.add_loss(self.rate * ops.mean(x))
        return self.function(x) * self.rate + self.shift


def set_rate(layer):
    layer.rate = 3.0


def set_tensor(layer):
    layer.shift = tf.constant(-2.0)


def set_function(layer):
    layer.function = ops.relu


def set_numpy(layer):
    layer.shift = np.float32(4) * np.ones(3, "float32")


@pytest.mark.quick
@pytest.mark.parametrize("change", [set_rate, set_tensor, set_function, set_numpy])
def test_an_attribute_that_changes_between_steps_of_an_own_loop(change):
    def trained(gpus):
        keras.utils.set_random_seed(0)
        scales = Scales()
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3), scales, layers.Dense(2)])
        used = multi_gpu_model(model, gpus) if gpus else model
        for number in range(3):
            if number == 1:
                change(scales)
            with tf.GradientTape() as tape:
                loss = ops.mean(used(x, training=True) ** 2) + sum(used.losses)
            weights = used.trainable_variables
            keras.optimizers.SGD(0.1).apply(tape.gradient(loss, weights), weights)
        return model.get_weights()

    for weight, expected in zip(trained(3), trained(None), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("adapted", [layers.Normalization, lambda: layers.Discretization(num_bins=3)])
def test_a_layer_that_is_adapted_again(adapted):
    layer = adapted()
    layer.adapt(x)
    template = keras.Sequential([keras.Input((4,)), layer])
    parallel = multi_gpu_model(template, 3)
    parallel(x)
    layer.adapt(5 * x + 1)
    np.testing.assert_allclose(parallel(x), template(x), rtol=1e-5)


def test_the_rate_of_dropout():
    template = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5)])
    parallel = multi_gpu_model(template, 3)
    parallel(x, training=True)
    template.layers[0].rate = 0.0
    np.testing.assert_array_equal(parallel(x, training=True), x)


def test_nothing_is_traced_again_where_nothing_changes():
    """Neither for what the call itself changes, nor after a training."""
    scales = Scales()
    parallel = multi_gpu_model(keras.Sequential([keras.Input((4,)), scales, layers.Dense(2)]), 3)
    parallel(x)
    traced = scales.traced
    parallel(x)
    assert scales.traced == traced
    parallel.compile("sgd", "mse")
    parallel.predict(x, verbose=0)
    parallel(x)  # the attribute has counted predict's trace
    traced = scales.traced
    scales.rate = 1.0
    parallel(x)
    assert scales.traced == traced
