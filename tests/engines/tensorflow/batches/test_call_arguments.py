"""What the arguments of a call are: tensors that are split along their rows, or values that all slices receive."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
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
