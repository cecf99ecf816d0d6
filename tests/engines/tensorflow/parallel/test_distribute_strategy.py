"""Errors lead code for MirroredStrategy to the parallel model, and the two are kept apart."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same, assert_same_weights, dense_data, dense_net, make_twins

import multigpu
from multigpu import multi_gpu_model

PATH = (
    "Leave the strategy and its scope out: build the model, make `parallel = multi_gpu_model(model, gpus)`, then "
    "compile and fit `parallel`; docs/migrate-from-mirrored-strategy.md has it line by line."
)
USED = (
    "Expected a parallel model to be used outside of any `strategy.scope()`: multigpu spreads the work by itself. "
    f"Received: the scope of MirroredStrategy. {PATH}"
)


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def refusal(work):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        work()
    return str(error.value)


def test_a_parallel_model_cannot_be_made_inside_of_a_scope(strategy):
    model = dense_net()
    with strategy.scope():
        assert refusal(lambda: multi_gpu_model(model, gpus=2)) == USED.replace(
            "a parallel model to be used", "`multi_gpu_model()` to be called"
        )


def test_a_parallel_model_cannot_be_used_inside_of_a_scope(strategy):
    parallel = multi_gpu_model(dense_net(), gpus=2)
    x, y = dense_data()
    with strategy.scope():
        for work in (
            lambda: parallel.fit(x, y, verbose=0),
            lambda: parallel.evaluate(x, y, verbose=0),
            lambda: parallel.predict(x, verbose=0),
            lambda: parallel.train_on_batch(x, y),
            lambda: parallel.compile("sgd", "mse"),
        ):
            assert refusal(work) == USED
        assert USED in refusal(lambda: parallel(x))  # Keras puts a line before it
    parallel.fit(x, y, verbose=0)  # as before, outside


def test_graphs_of_tensorflow_1_are_refused():
    """Keras 3 ends in errors of TensorFlow there, on one device as well."""
    model = dense_net()
    parallel = multi_gpu_model(model, gpus=2)
    x, y = dense_data()
    with tf.Graph().as_default():
        made = refusal(lambda: multi_gpu_model(model, gpus=2))
        used = refusal(lambda: parallel.predict(x, verbose=0))
    assert made.startswith("Expected `multi_gpu_model()` to be called where TensorFlow runs eagerly. Received: a call")
    assert used == made.replace("`multi_gpu_model()` to be called", "a parallel model to be used")
    parallel.fit(x, y, verbose=0)  # as before, outside


def test_a_template_made_inside_of_a_scope_is_refused_naming_its_weight(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="head")], name="mirrored")
    assert refusal(lambda: multi_gpu_model(model, gpus=2)) == (
        "Expected a template made outside of any `strategy.scope()`. Received: 'mirrored', whose weight "
        f"'mirrored/head/kernel' was made in the scope of MirroredStrategy, once per device. {PATH}"
    )


def test_the_page_that_is_named_is_there_and_its_code_runs_with_the_numbers_of_one_device(tmp_path, monkeypatch):
    page = (Path(__file__).parents[4] / "docs" / "migrate-from-mirrored-strategy.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    (code,) = [block for block in blocks if "multi_gpu_model(" in block]
    monkeypatch.chdir(tmp_path)  # where it saves the model
    x, y = dense_data()
    one, _ = make_twins(dense_net)
    scope = {"multigpu": multigpu, "make_model": dense_net, "x": x, "y": y, "weights": one.get_weights()}
    exec(code, scope)
    assert_same_weights_after_the_same_training(one, scope["parallel"], x, y)


def assert_same_weights_after_the_same_training(one, parallel, x, y):
    assert type(parallel.template) is keras.Sequential
    parallel.set_weights(one.get_weights())
    for model in (one, parallel):
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same_weights(parallel.template, one)
    assert_same(parallel.predict(x, verbose=0), np.asarray(one.predict(x, verbose=0)))
