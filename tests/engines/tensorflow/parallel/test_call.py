"""Code that needs values in Python: it runs op by op in direct calls, and is refused by name in a traced step."""

import dataclasses
import unittest.mock
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import random_rows
from function_layer import FunctionLayer
from keras import layers

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.cluster.reduction import Reduction

X, Y = random_rows(16, 4), random_rows(16, 2, seed=1)


def model_with(function):
    """A subclassed model, which Keras does not call before it has data."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [layers.Dense(4), FunctionLayer(function, name="needs"), layers.Dense(2)]

        def call(self, x):
            for part in self.parts:
                x = part(x)
            return x

    model = Own()
    model(X)
    return model


NEED_ROWS = {
    "in a shape": lambda x: tf.reshape(tf.reshape(x, (x.shape[0], 2, -1)), (x.shape[0], 4)) ** 2,
    "of noise": lambda x: x + keras.random.normal((x.shape[0], 4), seed=1),
    "in a loop": lambda x: tf.stack([2 * x[row] for row in range(x.shape[0])]),
    "unstacked": lambda x: tf.stack([2 * row for row in tf.unstack(x)]),
}
NEED_VALUES = {
    "len": lambda x: x + tf.zeros((len(x), 1)),
    "iteration": lambda x: tf.stack([2 * row for row in x]),
    "a number": lambda x: x * float(tf.constant(2.0)),
    "NumPy": lambda x: x + np.tanh(x.numpy()),
}
MIXES = {"rows": lambda x: x / x.shape[0], "values": lambda x: x - x.numpy().mean(0)}


def own_training(model):
    """Run a loop of two batches outside of functions. Return its losses."""
    optimizer, losses = keras.optimizers.SGD(0.1), []
    for rows in (slice(0, 8), slice(8, 15)):
        with tf.GradientTape() as tape:
            losses.append(tf.reduce_mean((model(tf.constant(X[rows]), training=True) - Y[rows]) ** 2))
        gradients = tape.gradient(losses[-1], model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return losses


@pytest.mark.parametrize("function", [*NEED_ROWS.values(), *NEED_VALUES.values()], ids=[*NEED_ROWS, *NEED_VALUES])
def test_code_that_needs_values_in_python_runs_in_direct_calls(function):
    results = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(1)
        model = model_with(function)
        used = multi_gpu_model(model, gpus) if gpus else model
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            losses = own_training(used)
            outputs = used(X[:7])
        said = [str(each.message) for each in caught if "op by op" in str(each.message)]
        assert len(said) == (1 if gpus else 0)
        assert all("'needs'" in each or "FunctionLayer" in each for each in said)
        results.append([*losses, outputs, *model.get_weights()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *[(name, "train_on_batch") for name in NEED_ROWS],
        *[(name, "predict") for name in list(NEED_ROWS)[:1]],
        *[soak(name, "predict") for name in list(NEED_ROWS)[1:]],
        *[soak(name, "predict_on_batch") for name in NEED_ROWS],
    ],
)
def test_code_that_needs_the_number_of_rows_is_refused_in_a_traced_step_and_the_remedy_works(name, verb):
    given = (X, Y) if "train" in verb else (X,)
    results = []
    for gpus, eagerly in ((None, False), (3, True), (3, False)):
        keras.utils.set_random_seed(1)
        model = model_with(NEED_ROWS[name])
        used = multi_gpu_model(model, gpus) if gpus else model
        used.compile("sgd", "mse", run_eagerly=eagerly)
        if gpus and not eagerly:
            with pytest.raises(ValueError, match="Received: layer 'needs', which fails if the number of rows is open"):
                getattr(used, verb)(*given)
        else:
            results.append([getattr(used, verb)(*given), *model.get_weights()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MIXES)
def test_code_that_needs_values_and_mixes_rows_is_refused_in_direct_calls(name):
    with pytest.raises(ValueError, match=r"(?s)one by one.*Received: layer 'needs'"):
        multi_gpu_model(model_with(MIXES[name]), 2)(X)


def test_no_worker_of_several_runs_a_direct_call_op_by_op():
    """It would run another program than the others, and all would wait."""
    parallel = multi_gpu_model(model_with(NEED_VALUES["NumPy"]), 2)
    spread = parallel._spread
    alone = Reduction()
    spread._plan = dataclasses.replace(spread._plan, cluster=object())
    with (
        pytest.raises(AttributeError, match="numpy"),
        unittest.mock.patch.object(spread, "_workers", return_value=alone),
    ):
        parallel(X)


def test_an_error_of_code_in_a_direct_call_is_that_of_one_device():
    def fails(x):
        raise ValueError(f"no {x.dtype.name}")

    model = model_with(lambda x: x)
    parallel = multi_gpu_model(model, 2)
    model.parts[1].function = fails
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no float32"):
            parallel(X)
