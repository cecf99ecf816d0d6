"""What the arguments of a call are: tensors that are split along their rows, or values that all slices receive."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import ONE_CALL, random_rows
from keras import layers

import multigpu

X = random_rows(8, 4)


class Weighted(keras.Model):
    """Weights rows by another argument."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x, weights=None, options=None):
        return self.dense(x) * (weights if options is None else options["weights"])


def parallel(run_eagerly=False):
    template = Weighted()
    template(X, weights=X[:, :1])
    model = multigpu.multi_gpu_model(template, gpus=3)
    model.compile(run_eagerly=run_eagerly)
    return model


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("in_a_function", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_an_argument_with_other_rows_than_the_batch_is_refused_by_name(run_eagerly, in_a_function, rows):
    model, other = parallel(run_eagerly), np.ones((rows, 1), "float32")
    received = r"(?s)Expected tensors with as many rows as .* Received: {} of shape \(%d, 1\), and a batch of 8 rows"
    for name, arguments in {
        "`weights`": {"weights": other},
        r"`options\['weights'\]`": {"options": {"weights": other}},
    }.items():
        call = functools.partial(model, X, **arguments)
        with pytest.raises(ValueError, match=(received % rows).format(name)):
            tf.function(call)() if in_a_function else call()
    with pytest.raises(ValueError, match=(received % rows).format(r"`args\[1\]`")):
        model(X, other)


def test_where_rows_are_open_the_error_has_the_name_too():
    model = parallel()
    open_rows = [tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))]
    call = tf.function(lambda x, weights: model(x, weights=weights), input_signature=open_rows)
    np.testing.assert_allclose(call(X, X[:, :1]), model.template(X, X[:, :1]), **ONE_CALL)
    expected = r"(?s)same number of rows\. .*numbers in `weights`.*\[5\].*\[8\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        call(X, X[:5, :1])


FLAGS = {"numpy": np.True_, "an array": np.array(True), "a tensor": tf.constant(True), "Python": True}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_known_truth_value_decides_as_in_python(flag, run_eagerly):
    def numbers(gpus):
        template = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5, seed=1)])
        model = multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template
        model.compile(run_eagerly=run_eagerly)
        return model(X, training=FLAGS[flag])

    np.testing.assert_array_equal(numbers(3), numbers(None))
    assert np.any(numbers(3) == 0)


class Repeated(keras.Model):
    """A model whose code needs the values of its arguments."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x, times=1, scale=1.0):
        for _ in range(times):
            x = self.dense(x)
        return x * scale if scale > 1 else x


NUMBERS = {
    "NumPy's": {"times": np.int64(2), "scale": np.float32(3)},
    "of an array": {"times": np.array(3), "scale": np.array(0.5)},
    "a tensor's": {"times": tf.constant(2)},
    "a tensor's, of a float": {"scale": tf.constant(2.0)},
    "Python's": {"times": 2, "scale": 3.0},
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_code_of_a_template_can_use_the_values_of_numbers(kind, run_eagerly):
    template = Repeated()
    template(X)
    model = multigpu.multi_gpu_model(template, gpus=3)
    model.compile(run_eagerly=run_eagerly)
    np.testing.assert_allclose(model(X, **NUMBERS[kind]), template(X, **NUMBERS[kind]), **ONE_CALL)
    np.testing.assert_allclose(model(X, np.int32(1)), template(X, np.int32(1)), **ONE_CALL)


def test_a_number_that_code_does_not_need_is_traced_once_and_has_a_gradient():
    traced = []

    class Scaled(Repeated):
        def call(self, x, scale):
            traced.append(scale)
            return self.dense(x) * scale

    template = Scaled()
    template(X, np.float32(1))
    model = multigpu.multi_gpu_model(template, gpus=3)
    model(X, np.float32(2))
    of_first = len(traced)
    for scale in map(tf.constant, (3.0, 4.0)):
        with tf.GradientTape() as tape:
            tape.watch(scale)
            loss = tf.reduce_sum(model(X, scale))
        np.testing.assert_allclose(tape.gradient(loss, scale), loss / scale, rtol=1e-5)
    assert len(traced) == of_first


class Cooled(keras.Model):
    """Divides by an argument without rows, and adds a loss with it."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4, activation="tanh")

    def call(self, x, temperature):
        self.add_loss(tf.reduce_mean(tf.square(x)) * temperature)
        return self.dense(x * temperature) / temperature**2


def gradients_of_temperature(model, temperature):
    """First and second derivative of outputs and added loss, and the gradient of the weights."""
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape(persistent=True) as tape:
            for each in (outer, tape):
                each.watch(temperature)
            loss = tf.reduce_mean(model(X, temperature)) + sum(model.losses)
        first = tape.gradient(loss, temperature)
    return first, outer.gradient(first, temperature), *tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize(
    ("run_eagerly", "in_function"), [(False, False), (True, True), soak(False, True), soak(True, False)]
)
@pytest.mark.parametrize("temperature", [tf.constant(0.7), tf.Variable(0.7)], ids=["tensor", "variable"])
def test_an_argument_without_rows_has_the_gradients_of_one_device(run_eagerly, temperature, in_function):
    template = Cooled()
    template(X, tf.constant(1.0))
    model = multigpu.multi_gpu_model(template, gpus=3)
    model.compile(run_eagerly=run_eagerly)
    found = functools.partial(gradients_of_temperature, model, temperature)
    expected = gradients_of_temperature(template, temperature)
    for one, other in zip(tf.function(found)() if in_function else found(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
