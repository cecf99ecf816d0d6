"""Gradients of gradients are those of one device, also where a weight is a table whose gradient is rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from keras import layers, ops

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights import embedding_tables

IDS = np.random.default_rng(0).integers(0, 11, (7, 5))
NUMBERS = np.random.default_rng(1).normal(size=(7, 3))


def reader() -> keras.Model:
    """Looks rows up, and joins them with other numbers."""
    keras.utils.set_random_seed(0)
    ids, numbers = keras.Input((5,), dtype="int32"), keras.Input((3,))
    x = layers.Concatenate()([layers.Flatten()(layers.Embedding(11, 4)(ids)), numbers])
    return keras.Model([ids, numbers], layers.Dense(1, activation="tanh")(layers.Dense(7, activation="tanh")(x)))


def gradients_of_cubed_gradients(model, num_rows, of_weights):
    """Of the sum of the cubes of a gradient, the gradients for all weights and for the input."""
    ids, numbers = tf.constant(IDS[:num_rows]), tf.constant(NUMBERS[:num_rows], keras.backend.floatx())
    weights = [weight.value for weight in model.trainable_variables]
    with tf.GradientTape() as outer:
        outer.watch(numbers)
        with tf.GradientTape() as inner:
            inner.watch(numbers)
            y = ops.sum(model([ids, numbers], training=True) ** 2)
        gradients = inner.gradient(y, weights if of_weights else [numbers])
        cubes = sum(ops.sum(tf.convert_to_tensor(x) ** 3) for x in gradients)
    return [tf.convert_to_tensor(x) for x in outer.gradient(cubes, [*weights, numbers])]


@pytest.fixture(autouse=True)
def float64():
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


OF = {
    "sent, of the input": (False, False, 7),
    "sent, of weights": (False, True, 2),
    "table, of the input": (True, False, 2),
    "table, of weights": (True, True, 7),
}


@pytest.mark.parametrize(
    ("of", "eager"),
    [
        *((of, False) if of != "sent, of weights" else soak(of, False) for of in OF),
        ("table, of weights", True),  # TensorFlow traces each function anew for each order, which takes its time
        *(soak(of, True) for of in OF if of != "table, of weights"),
    ],
)
def test_gradients_of_gradients_reach_tables(monkeypatch, of, eager):
    stays_with_its_owner, of_weights, num_rows = OF[of]
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1 if stays_with_its_owner else 1 << 20)
    twins = [reader(), multi_gpu_model(reader(), gpus=3)]
    works = [lambda m=m: gradients_of_cubed_gradients(m, num_rows, of_weights) for m in twins]
    expected, given = (work() if eager else tf.function(work)() for work in works)
    for one, parallel in zip(expected, given, strict=True):
        np.testing.assert_allclose(parallel, one, rtol=1e-9, atol=1e-12)


def slope(model, x, tape):
    with tf.GradientTape() as inner:
        inner.watch(x)
        y = model(x, training=True)
    return inner.gradient(y, x)


def curvature(model, x, tape):
    with tf.GradientTape() as inner:
        inner.watch(x)
        first = slope(model, x, tape)
    return inner.gradient(first, x)


def slope_and_value(model, x, tape):
    return slope(model, x, tape) + model(x, training=True)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("of", [slope, curvature, slope_and_value])
def test_weights_that_a_derivative_does_not_depend_on_have_no_gradient(of, eager):
    class OnDerivatives(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = layers.Dense(4, activation="silu"), layers.Dense(1, bias_initializer="ones")

        def call(self, x):
            return self.last(self.first(x))

        def train_step(self, data):
            x, y = map(tf.convert_to_tensor, data[:2])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((of(self, x, tape)[:, 0] - y) ** 2)
            weights = self.trainable_variables
            gradients = zip(tape.gradient(loss, weights), weights, strict=True)
            self.optimizer.apply(*zip(*(each for each in gradients if each[0] is not None), strict=True))
            return {"loss": loss}

    def trained(gpus):
        keras.utils.set_random_seed(0)
        template = OnDerivatives()
        template(x)
        model = multi_gpu_model(template, gpus) if gpus else template
        model.compile(keras.optimizers.AdamW(0.02, weight_decay=0.5), run_eagerly=eager)
        losses = [model.train_on_batch(x, y) for _ in range(3)]
        return [*losses, *template.get_weights()]

    x, y = np.random.default_rng(0).normal(size=(7, 3)), np.ones(7)
    for given, expected in zip(trained(3), trained(None), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)


def slope_of_an_input_alone(model, x, tape):
    with tf.GradientTape(watch_accessed_variables=False) as inner:
        inner.watch(x)
        y = model(x, training=True)
    return inner.gradient(y, x)


@pytest.mark.parametrize(
    ("of", "in_a_graph"),
    [
        *[(slope, False), (slope_of_an_input_alone, True), (curvature, True), (slope_and_value, False)],
        *[soak(slope, True), soak(slope_of_an_input_alone, False), soak(curvature, False), soak(slope_and_value, True)],
    ],
)
def test_nor_have_they_in_a_loop_of_ones_own(of, in_a_graph):
    def gradients(gpus):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((3,))
        hidden = layers.Dense(4, activation="silu")(inputs)
        template = keras.Model(inputs, layers.Dense(1)(layers.Dense(3, activation="tanh")(hidden)))
        model, found = multi_gpu_model(template, gpus) if gpus else template, []

        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(of(model, x, tape) ** 2)
            found[:] = tape.gradient(loss, template.trainable_variables)
            return [gradient for gradient in found if gradient is not None]

        numbers = (tf.function(step) if in_a_graph else step)(tf.constant(np.random.default_rng(0).normal(size=(7, 3))))
        return [gradient is None for gradient in found], numbers

    (missing, numbers), (expected, of_one) = gradients(3), gradients(None)
    assert missing == expected == [False] * 5 + [of is not slope_and_value]
    for given, known in zip(numbers, of_one, strict=True):
        np.testing.assert_allclose(given, known, rtol=1e-9, atol=1e-12)


def gradient_of_a_vectorized_call(model, x):
    with tf.GradientTape() as tape:
        loss = ops.sum(tf.vectorized_map(model, x) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def gradient_of_a_jacobian(model, x):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = model(x[0])
        loss = ops.sum(inner.jacobian(y, x) ** 2)
    return outer.gradient(loss, model.trainable_variables)


def gradient_of_vectorized_gradients(model, x):
    def slope(x):
        with tf.GradientTape() as inner:
            y = ops.sum(model(x) ** 2)
        return ops.sum(inner.gradient(y, model.trainable_variables[0]) ** 2)

    with tf.GradientTape() as outer:
        loss = ops.sum(tf.vectorized_map(slope, x))
    return outer.gradient(loss, model.trainable_variables[0])


def gradients_of_each_row(model, x):
    def of_one(x):
        with tf.GradientTape() as tape:
            loss = ops.sum(model(x[None]) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    return tf.vectorized_map(of_one, x[0])


def jacobian_of_weights(model, x):
    with tf.GradientTape() as tape:
        loss = ops.sum(model(x[0]) ** 2, 1)
    return tape.jacobian(loss, model.trainable_variables)


def dense() -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(2)])


@pytest.mark.parametrize("around", [lambda f: f, lambda f: tf.function(f, autograph=False)], ids=["direct", "function"])
@pytest.mark.parametrize(
    "derive", [gradient_of_a_vectorized_call, gradient_of_a_jacobian, gradient_of_vectorized_gradients]
)
def test_a_gradient_through_a_vectorized_call_is_refused_as_it_would_be_zero(derive, around):
    model = multi_gpu_model(dense(), gpus=2)
    x = tf.random.stateless_normal((4, 7, 3), [0, 0], dtype="float64")
    with pytest.raises(ValueError, match="vectoriz") as refused:
        around(lambda: derive(model, x))()
    assert "Expected gradients of a parallel model that do not pass through `tf.vectorized_map`" in str(
        refused.value.__cause__ or refused.value
    )


def gradient_of_a_mapped_call(model, x):
    with tf.GradientTape() as tape:
        loss = ops.sum(tf.map_fn(model, x) ** 2)
    return tape.gradient(loss, model.trainable_variables)


@tf.function(autograph=False)
def gradient_of_a_jacobian_by_loops(model, x):
    with tf.GradientTape() as outer:
        with tf.GradientTape(persistent=True) as inner:
            inner.watch(x)
            y = model(x[0])
        loss = ops.sum(inner.jacobian(y, x, experimental_use_pfor=False) ** 2)
    return outer.gradient(loss, model.trainable_variables[:-1])


@pytest.mark.parametrize(
    "derive", [gradients_of_each_row, jacobian_of_weights, gradient_of_a_mapped_call, gradient_of_a_jacobian_by_loops]
)
def test_gradients_in_a_vectorized_call_or_by_loops_are_those_of_one_device(derive):
    template = dense()
    x = tf.random.stateless_normal((4, 7, 3), [0, 0], dtype="float64")
    expected, actual = derive(template, x), derive(multi_gpu_model(template, gpus=2), x)
    for of_one, of_several in zip(expected, actual, strict=True):
        np.testing.assert_allclose(of_several, of_one, rtol=1e-9, atol=1e-12)
