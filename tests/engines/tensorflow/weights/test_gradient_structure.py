"""Weights that no gradient reaches get none, as on one device."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from keras import layers

from multigpu import multi_gpu_model, on_device
from multigpu.engines.tensorflow.weights import embedding_tables


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


def as_function(step):
    return tf.function(step, autograph=False)


def op_by_op(step):
    return step


WAYS = pytest.mark.parametrize("way", [as_function, op_by_op])


@WAYS
@pytest.mark.parametrize("order", [(0, 1), (1, 0, 1)])
def test_each_gradient_of_a_persistent_tape_has_none_where_one_device_has_none(order, way):
    x = tf.ones((7, 5))

    def pattern(model):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            losses = [tf.reduce_mean(y**2) for y in model(x, training=True)]
        tape.gradient(losses[1 - order[0]], x)  # of inputs alone
        gradients = [tape.gradient(losses[head], model.trainable_variables) for head in order]
        patterns.append([[each is None for each in of_loss] for of_loss in gradients])
        return [each for of_loss in gradients for each in of_loss if each is not None]

    patterns = []
    one, parallel = (way(pattern)(m) for m in (two_heads(), multi_gpu_model(two_heads(), gpus=3)))
    assert patterns[0] == patterns[1]
    assert sum(map(sum, patterns[0])) == 2 * len(order)
    for expected, given in zip(one, parallel, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def adam_with_decay():
    return keras.optimizers.AdamW(0.02, weight_decay=0.5)


def momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def heads_of_many_kinds(on=lambda device: contextlib.nullcontext()):
    """Heads with a table, with an added loss, and in parts; the last one is never trained."""
    keras.utils.set_random_seed(0)
    inputs, ids = keras.Input((5,)), keras.Input((3,), dtype="int32")
    with on("GPU:0"):
        x = layers.Dense(4, activation="tanh")(inputs)
        of_ids = layers.Flatten()(layers.Embedding(9, 2)(ids))
    with on("GPU:1"):
        heads = [layers.Dense(2)(x), layers.Dense(2)(of_ids), layers.Dense(2, activity_regularizer="l2")(x)]
    return keras.Model([inputs, ids], [*heads, layers.Dense(2)(x)])


def of_slices(monkeypatch):
    template = heads_of_many_kinds()
    return template, multi_gpu_model(template, gpus=3)


def of_tables_that_stay(monkeypatch):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1)
    return of_slices(monkeypatch)


def of_groups(monkeypatch):
    template = heads_of_many_kinds(on_device)
    return template, multi_gpu_model(template, gpus=[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]])


@WAYS
@pytest.mark.parametrize(
    ("models", "optimizer"),
    [
        (of_slices, adam_with_decay),
        soak(of_slices, momentum),
        (of_tables_that_stay, momentum),
        (of_groups, momentum),
    ],
)
def test_a_head_that_a_step_does_not_use_stays_as_it_is(models, optimizer, way, monkeypatch):
    random = np.random.default_rng(0)
    x, ids = random.normal(size=(3, 8, 5)).astype("f4"), random.integers(0, 9, size=(3, 8, 3))
    y = random.normal(size=(3, 8, 2)).astype("f4")

    def train(template, model):
        ours, weights = optimizer(), template.trainable_variables
        ours.build(weights)

        def step(x, ids, y, head):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model([x, ids], training=True)[head] - y) ** 2)
                loss += sum(model.losses) if head == 2 else 0.0
            gradients = zip(tape.gradient(loss, weights), weights, strict=True)
            ours.apply(*zip(*(each for each in gradients if each[0] is not None), strict=True))

        run = way(step)
        for number in range(3):
            run(*map(tf.constant, (x[number], ids[number], y[number])), number)
        return template.get_weights()

    one = heads_of_many_kinds()
    last, expected = one.get_weights()[-2], train(one, one)
    given = train(*models(monkeypatch))
    np.testing.assert_array_equal(given[-2], last)
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
