"""Tracing is paid once: Xception on 8 devices would otherwise need minutes to its first step."""

import keras
import numpy as np
import pytest

import multigpu

X = np.random.default_rng(0).normal(size=(21, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(21, 3)).astype("float32")


class CountsItsTraces(keras.layers.Layer):
    traces = 0

    def call(self, x):
        type(self).traces += 1
        return x


@pytest.fixture
def parallel(monkeypatch, unchecked):
    inputs = keras.Input((4,))
    template = keras.Model(inputs, CountsItsTraces()(keras.layers.Dense(3)(inputs)))
    parallel = multigpu.multi_gpu_model(template, gpus=8)
    parallel.compile(optimizer="adam", loss="mse", metrics=["mae"])
    monkeypatch.setattr(CountsItsTraces, "traces", 0)
    return parallel


def test_fit_traces_template_and_step_once_with_metrics_and_an_uneven_last_batch(parallel, monkeypatch):
    steps = []
    step = type(parallel).train_step
    monkeypatch.setattr(type(parallel), "train_step", lambda self, data: steps.append(0) or step(self, data))
    parallel.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert CountsItsTraces.traces == 1
    assert len(steps) == 1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_uneven_last_batch_is_no_reason_to_trace_again_in_later_epochs(parallel, jit_compile):
    """21 rows in batches of 8: every epoch ends with 5, which leave three devices without a row."""
    parallel.compile("sgd", "mse", jit_compile=jit_compile)
    parallel.fit(X, Y, batch_size=8, verbose=0)
    first = CountsItsTraces.traces
    assert first > 0
    parallel.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert CountsItsTraces.traces == first


def test_calls_outside_of_any_function_are_traced_once(parallel):
    for _ in range(3):
        parallel(X)
    assert CountsItsTraces.traces == 1


def test_freezing_a_layer_is_seen_by_the_next_call(parallel):
    parallel(X)
    parallel.layers[1].trainable = False
    parallel(X)
    assert CountsItsTraces.traces == 2


@pytest.mark.parametrize(
    ("activation", "loss"), [("softmax", "sparse_categorical_crossentropy"), ("sigmoid", "binary_crossentropy")]
)
def test_stages_are_traced_once_for_a_loss_that_keras_takes_of_logits(monkeypatch, unchecked, activation, loss):
    inputs = keras.Input((4,))
    normalized = keras.layers.BatchNormalization(synchronized=True)(CountsItsTraces()(inputs))
    template = keras.Model(inputs, keras.layers.Dense(3, activation=activation)(normalized))
    parallel = multigpu.multi_gpu_model(template, gpus=3)
    parallel.compile("sgd", loss)
    monkeypatch.setattr(CountsItsTraces, "traces", 0)
    parallel.fit(X, np.arange(21) % 3 if activation == "softmax" else Y > 0, verbose=0)
    assert CountsItsTraces.traces == 1
