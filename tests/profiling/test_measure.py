"""`measure()` takes real steps, tells where their time goes, and leaves everything as it was."""

import dataclasses
import re
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import dense_model, random_rows
from executed_graphs import executed
from keras import layers

from multigpu import measure, multi_gpu_model, on_device
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.weights.place_locate import locate
from multigpu.model.parallel_model import ParallelModel
from multigpu.plan.plan import Plan
from multigpu.profiling.measurement import measurement_from_seconds

X, Y = random_rows(40, 3), random_rows(40, 2, seed=1)


def trained(steps_before, measured):
    """Weights, optimizer, metrics and history of a training that is measured half way, or is not."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    parts = [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(2)]
    template = keras.Sequential([keras.Input((3,)), *parts])
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    for _ in range(steps_before):
        parallel.train_on_batch(X[:8], Y[:8])
    places = [locate(variable) for variable in template.variables]
    if measured:
        measure(parallel, X, Y, batch_size=8, steps=1, verbose=0)
    assert [locate(variable) for variable in template.variables] == places
    assert template.jit_compile is False
    metrics = parallel.train_on_batch(X[8:16], Y[8:16], return_dict=True)  # which goes on from the steps before
    history = parallel.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    values = [v.numpy() for v in [*template.variables, *parallel.optimizer.variables, *parallel.metrics_variables]]
    return values, {**metrics, **history.history}


@pytest.mark.parametrize("steps_before", [soak(0), 2])
def test_training_goes_on_as_if_nothing_had_been_measured(steps_before):
    values, history = trained(steps_before, measured=True)
    expected, expected_history = trained(steps_before, measured=False)
    assert len(values) == len(expected) > 10
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    assert history == expected_history


@pytest.fixture(scope="module")
def parallel():
    model = multi_gpu_model(dense_model(), gpus=2)
    model.compile("sgd", "mse")
    return model


class Slow(keras.utils.PyDataset):
    """A source that takes its time."""

    def __len__(self):
        return 3

    def __getitem__(self, number):
        time.sleep(0.2)
        return X[:8], Y[:8]


def test_a_slow_source_is_found_out(parallel):
    measured = measure(parallel, Slow(), steps=2, verbose=0)
    assert measured.input > 0.2
    assert measured.waiting > 0.5
    assert "the devices wait for the next batch, so make the input pipeline faster" in measured.verdict


def test_it_counts_steps_on_a_progress_bar(parallel, capsys):
    measured = measure(parallel, X, Y, batch_size=16, steps=2)
    assert "9/9" in capsys.readouterr().out
    assert (measured.devices, measured.batch_size) == (("CPU:0", "CPU:1"), 16)
    assert measured.speed_up == measured.one_device / measured.all_devices
    assert measured.compute + measured.transfer + measured.waiting == pytest.approx(1)
    assert str(measured).splitlines()[0].split() == ["ms", "per", "step"]
    assert str(measured).splitlines()[-1] == measured.verdict


GPUS = Plan(("GPU:0", "GPU:1"), "CPU:0")


@pytest.mark.parametrize(
    ("plan", "seconds", "verdict"),
    [
        (GPUS, (1.0, 0.5, 0.5, 0.1), "It pays: 2 devices are 2.00 times as fast as one."),
        (
            GPUS,
            (1.0, 2.0, 0.5, 0.1),
            "It does not pay: 75% of the time goes to sending weights and gradients, which takes as long for 64 rows "
            "as for more, so use a larger batch, or fewer GPUs than 2.",
        ),
        (
            GPUS,
            (1.0, 0.5, 0.5, 2.0),
            "It pays less than it could: for 75% of the time the devices wait for the next batch, so make the input "
            "pipeline faster, with `tf.data`, `cache()` and `prefetch()`.",
        ),
        (
            Plan(("CPU:0", "CPU:1"), "CPU:0"),
            (1.0, 1.25, 1.0, 0.1),
            "It does not pay here: these devices are parts of one CPU, and one device can use the whole CPU. "
            "Transfer takes 20% of the time; a larger batch would reduce this share, also on GPUs.",
        ),
        (
            Plan(("CPU:0", "CPU:1"), "CPU:0"),
            (1.0, 1.25, 1.25, 0.1),
            "It does not pay here: these devices are parts of one CPU, and one device can use the whole CPU.",
        ),
        (
            GPUS,
            (1.0, 1.25, 1.25, 0.1),
            "It does not pay: one device takes as long for 32 rows as for 64, so use a larger batch, or fewer GPUs "
            "than 2.",
        ),
    ],
)
def test_one_sentence_says_whether_it_pays_and_what_would_help(plan, seconds, verdict):
    assert measurement_from_seconds(plan, 64, *seconds).verdict == verdict


def test_what_cannot_be_measured_is_refused(parallel):
    def refusal(*args, **kwargs):
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
            measure(*args, **kwargs)
        return str(error.value)

    assert refusal(dense_model(), X, Y) == (
        "Expected `parallel` to be a parallel model. Received: Sequential. Make one with `multi_gpu_model(model)`."
    )
    of_two = multi_gpu_model(dense_model(), gpus=2)
    of_two.plan = dataclasses.replace(of_two.plan, cluster=Cluster(("a", "b"), ("a:1", "b:1"), 0))
    assert refusal(of_two, X, Y) == (
        f"Expected a parallel model of one machine. Received: {of_two.name!r}, which 2 workers train together. Measure "
        "it without TF_CONFIG, on one of them."
    )
    uncompiled = multi_gpu_model(dense_model(), gpus=2)
    assert type(uncompiled) is ParallelModel
    assert refusal(uncompiled, X, Y) == (
        f"Expected a compiled model. Received: {uncompiled.name!r}, which is not. Call `parallel.compile()` first."
    )
    without = (
        "Expected targets, which the model's loss compares. Received: y=None. Pass `measure(parallel, x, y)`, or let a "
        "dataset `x` give inputs and targets."
    )
    assert refusal(parallel, X) == refusal(parallel, tf.data.Dataset.from_tensor_slices(X).batch(8)) == without
    assert refusal(parallel, X, Y, steps=0) == (
        "Expected `steps` to be a whole number of 1 or more. Received: steps=0. Use `steps=5`."
    )
    assert refusal(parallel, X[:0], Y[:0]) == (
        "Expected `x` to give at least one batch. Received: none. Pass arrays with rows in them."
    )
    numbers = tf.data.Dataset.from_tensor_slices((X[:, 0], Y[:, 0]))
    cure = r"Use `x\.batch\(32\)`, as for `fit\(\)`\."
    said = rf"Expected `x` to give batches, whose tensors have rows\. Received: .*\. {cure}"
    assert re.match(said, refusal(parallel, numbers), re.DOTALL)


def test_one_device_is_the_first_of_the_plan():
    parallel = multi_gpu_model(dense_model(), gpus=["CPU:2", "CPU:3"])
    parallel.compile("sgd", "mse")
    run = executed(lambda: measure(parallel, X, Y, batch_size=20, steps=1, verbose=0))
    assert set(run.devices_of("MatMul")) == {"CPU:2", "CPU:3"}


def test_groups_are_compared_with_the_template_on_the_devices_of_its_parts():
    x = keras.Input((3,))
    with on_device("CPU:1"):
        h = layers.Dense(4)(x)
    with on_device("CPU:2"):
        template = keras.Model(x, layers.Dense(2)(h))
    parallel = multi_gpu_model(template, gpus=[["CPU:3", "CPU:4"], ["CPU:5", "CPU:6"]])
    parallel.compile("adam", "mse")
    before, places = template.get_weights(), [locate(variable) for variable in template.variables]
    measured = measure(parallel, X, Y, batch_size=8, steps=1, verbose=0)
    assert str(measured).splitlines()[1].lstrip().startswith("CPU:1 + CPU:2 alone, 8 rows")
    assert "4 devices together, 8 rows" in str(measured)
    assert [locate(variable) for variable in template.variables] == places
    for weight, other in zip(template.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, other)
