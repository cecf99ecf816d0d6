"""BatchNormalization with statistics per replica, as it is by default."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import COUNTS, FLOAT32, random_rows, train

from multigpu import multi_gpu_model

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers


@pytest.mark.quick
@pytest.mark.parametrize("gpus", COUNTS)
def test_moving_statistics_after_one_step(gpus):
    """The mean is that of one device, the variance is the mean of the slices' variances, weighted by rows."""
    x = random_rows(19, 2)
    template = keras.Sequential([keras.Input((2,)), layers.BatchNormalization(momentum=0.9), layers.Dense(1)])
    parallel = multi_gpu_model(template, gpus=gpus)
    parallel.compile("sgd", "mse")
    parallel.train_on_batch(x, random_rows(19, 1))
    slices = np.array_split(x, gpus)
    variance = sum(len(rows) * rows.var(axis=0) for rows in slices) / len(x)
    normalization = template.layers[0]
    np.testing.assert_allclose(normalization.moving_mean.numpy(), 0.1 * x.mean(axis=0), **FLOAT32)
    np.testing.assert_allclose(normalization.moving_variance.numpy(), 0.9 + 0.1 * variance, **FLOAT32)


def convolution_with_normalization() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((5, 5, 1)),
            layers.Conv2D(3, 2, use_bias=False),
            layers.BatchNormalization(momentum=0.8),
            layers.Activation("tanh"),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )


def train_on_slices(template: keras.Model, x: np.ndarray, y: np.ndarray, num_slices: int) -> float:
    """One step of SGD by hand: each slice normalises itself, the loss is taken once, moving statistics are averaged."""
    state = template.non_trainable_variables
    before = [variable.numpy() for variable in state]
    total = [np.zeros_like(value) for value in before]
    with tf.GradientTape() as tape:
        outputs = []
        for rows in filter(len, np.array_split(x, num_slices)):  # 2 rows leave most devices without any
            outputs.append(template(rows, training=True))
            total = [t + len(rows) * variable.numpy() for t, variable in zip(total, state, strict=True)]
            for variable, value in zip(state, before, strict=True):
                variable.assign(value)
        loss = tf.reduce_mean(tf.square(tf.concat(outputs, axis=0) - y))
    weights = template.trainable_variables
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * gradient)
    for variable, value in zip(state, total, strict=True):
        variable.assign(value / len(x))
    return float(loss)


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_convolution_with_normalization_equals_slices_by_hand(gpus):
    x, y = random_rows(ROWS, 5, 5, 1), random_rows(ROWS, 2)

    def compile():
        return {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse"}

    template, numbers = train(convolution_with_normalization, x, y, compile=compile, gpus=gpus)
    keras.utils.set_random_seed(0)
    by_hand = convolution_with_normalization()
    batches = [slice(0, 8), slice(8, 16), slice(16, 18)]
    losses = [train_on_slices(by_hand, x[rows], y[rows], gpus) for rows in batches]
    np.testing.assert_allclose(numbers["history loss 0"], np.average(losses, weights=[8, 8, 2]), **FLOAT32)
    for parallel, reference in zip(template.variables, by_hand.variables, strict=True):
        np.testing.assert_allclose(parallel.numpy(), reference.numpy(), err_msg=parallel.path, **FLOAT32)
