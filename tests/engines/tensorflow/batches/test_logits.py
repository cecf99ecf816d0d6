"""Crossentropies take the logits of probabilities, in loops of one's own and between parts, too."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import FLOAT32, random_ids, random_rows

import multigpu
from multigpu import multi_gpu_model

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers


@pytest.mark.parametrize("as_function", [False, True])
def test_a_loop_takes_the_crossentropy_of_the_logits_of_masked_probabilities(as_function):
    model = keras.Sequential([keras.Input((4, 2)), layers.Masking(), layers.Dense(2, activation="softmax")])
    x, y = 60 * random_rows(8, 4, 2), random_ids(8, 4, below=2)
    x[random_ids(8, 4, below=2) == 0] = 0
    loss = keras.losses.SparseCategoricalCrossentropy()
    parallel = multi_gpu_model(model, gpus=3)
    of_parallel, of_template = (
        (tf.function(each) if as_function else each)()
        for each in (lambda: loss(y, parallel(x)), lambda: loss(y, model(x)))
    )
    assert float(of_template) > 1.2 * float(loss(y, tf.identity(model(x))))  # what clipping makes of it, without a mask
    np.testing.assert_allclose(of_parallel, of_template, **FLOAT32)


class Endpoint(layers.Layer):
    """Adds the crossentropy of probabilities that it is given."""

    def call(self, given):
        y_true, y_pred = given
        self.add_loss(tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred)))
        return y_pred


def in_an_endpoint(on):
    """A network of two parts, of which the second one is the loss."""
    x, y = keras.Input((3,)), keras.Input((1,), dtype="int32")
    with on("CPU:1"):
        y_pred = layers.Dense(2, activation="softmax")(x)
    with on("CPU:2"):
        return keras.Model([x, y], Endpoint()([y, y_pred]))


@pytest.mark.parametrize("gpus", [None, [["CPU:1", "CPU:2"]] * 2])
def test_a_part_that_adds_a_crossentropy_takes_the_logits_of_its_input(gpus):
    x = [60 * random_rows(ROWS, 3), random_ids(ROWS, 1, below=2)]
    losses, weights = [], []
    for plain in (True, False):
        keras.utils.set_random_seed(0)
        template = in_an_endpoint((lambda device: contextlib.nullcontext()) if plain else multigpu.on_device)
        model = template if plain or gpus is None else multi_gpu_model(template, gpus=gpus)
        model.compile(optimizer=keras.optimizers.SGD(0.1))
        losses.append(model.fit(x, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"])
        weights.append(template.get_weights())
    np.testing.assert_allclose(losses[1], losses[0], **FLOAT32)
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(other, one, **FLOAT32)


class Crossentropies(keras.Model):
    """One for each row of probabilities that it is given."""

    def call(self, given):
        y_true, y_pred = given
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)[:, None]


@pytest.mark.parametrize("as_function", [False, True])
def test_a_parallel_part_takes_the_logits_of_its_arguments(as_function):
    first = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="softmax")])
    second = Crossentropies()
    x, y = tf.constant(60 * random_rows(8, 3)), tf.constant(random_ids(8, 1, below=2))
    second([y, first(x)])
    numbers = []
    for part in (second, multi_gpu_model(second, gpus=3)):

        def loss_and_gradients(part=part):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(part([y, first(x)]))
            return [loss, *tape.gradient(loss, first.trainable_variables)]

        numbers.append((tf.function(loss_and_gradients) if as_function else loss_and_gradients)())
    for one, other in zip(*numbers, strict=True):
        np.testing.assert_allclose(other, one, **FLOAT32)
