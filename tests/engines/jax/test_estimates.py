"""An estimate is what the step of the parallel model turns out to take; nothing is moved for it."""

import json
import subprocess
import sys

import keras
import pytest
from equality import random_ids, random_rows
from keras import layers

from multigpu import estimate, multi_gpu_model
from multigpu.engines.jax.placement import layout_of
from multigpu.engines.jax.rows import send


def mlp():
    return keras.Sequential([keras.Input((512,)), *[layers.Dense(512, "relu") for _ in range(3)], layers.Dense(10)])


def conv():
    convolutions = [layers.Conv2D(32, 3, activation="relu"), layers.BatchNormalization(), layers.Conv2D(64, 3)]
    return keras.Sequential(
        [keras.Input((32, 32, 3)), *convolutions, layers.GlobalAveragePooling2D(), layers.Dense(10)]
    )


def lstm():
    recurrent = [layers.Embedding(1000, 64), layers.LSTM(128, return_sequences=True), layers.LSTM(128)]
    return keras.Sequential([keras.Input((40,), dtype="int32"), *recurrent, layers.Dense(10)])


def transformer():
    inputs = keras.Input((64,), dtype="int32")
    x = layers.Embedding(1000, 128)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def step_memory(parallel, x, y):
    """What XLA says of the step that `fit()` runs."""
    keras.utils.set_random_seed(0)
    parallel.compile("adam", "mse", metrics=["mae"])
    parallel.train_on_batch(x, y)
    layout = layout_of(parallel.plan)
    template = parallel.template
    state = tuple(
        [variable.value for variable in kind]
        for kind in (
            template.trainable_variables,
            template.non_trainable_variables,
            template.optimizer.variables,
            template.metrics_variables,
        )
    )
    parallel.make_train_function()
    memory = parallel.train_function.run.lower(layout.place(state), send((x, y), layout)).compile()
    memory = memory.memory_analysis()
    given = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return given + memory.temp_size_in_bytes


@pytest.mark.parametrize(("build", "gpus"), [(mlp, 8), (conv, 2), (conv, 8), (lstm, 8), (transformer, 2)])
def test_the_estimate_of_a_device_is_within_a_quarter_of_what_the_step_takes(build, gpus):
    model = build()
    rows = 64 if build is not conv else 16
    estimated = estimate(model, gpus, rows, "adam")
    assert {len(v.value.sharding.device_set) for v in model.variables} == {1}  # nothing was moved
    ids = build in (lstm, transformer)
    x = random_ids(rows, *model.input_shape[1:], below=1000) if ids else random_rows(rows, *model.input_shape[1:])
    taken = step_memory(multi_gpu_model(model, gpus), x, random_rows(rows, 10))
    assert [row.total for row in estimated] == [pytest.approx(taken, rel=0.25)] * gpus


def test_devices_have_to_be_there_and_one_is_enough():
    with pytest.raises(
        ValueError,
        match=r"Expected devices that exist, .* Call `multigpu.simulate_gpus\(9\)` right .* `KERAS_BACKEND=tensorflow`",
    ):
        estimate(mlp(), 9)
    estimated = estimate(mlp(), 1, 64, "adam")
    assert estimated.slices_that_fit(1e9) is None
    alone = estimated[0]
    assert (alone.rows, alone.weights, alone.optimizer) == (64, 4 * mlp().count_params(), 8 * mlp().count_params() + 8)


def test_totals_are_those_of_the_model_and_rows_those_of_the_devices():
    estimated = estimate(mlp(), 8, 64, "adam")
    assert (estimated.parameters, estimated.weights) == (mlp().count_params(), 4 * mlp().count_params())
    assert "MB of optimizer (Adam)" in str(estimated)
    model = mlp()
    parallel = multi_gpu_model(model, 8)
    parallel.compile("adam", "mse")
    parallel.train_on_batch(random_rows(8, 512), random_rows(8, 10))
    seen = parallel.overview(8)
    assert [(row.weights, row.optimizer) for row in estimated] == [(row.weights, row.slots) for row in seen]


def test_weights_rest_on_the_host_with_cpu_relocation():
    assert {(row.weights, row.optimizer) for row in estimate(mlp(), 2, 8, "adam", cpu_relocation=True)} == {(0, 0)}


def test_a_model_that_does_not_know_its_inputs_has_no_activations():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    model = Own()
    model(random_rows(2, 5))
    estimated = estimate(model, 2, 8, "sgd")
    assert [row.activations for row in estimated] == [None, None]


def test_layers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"the layers of .* on JAX.*Use the rows of `estimate\(\)`, or set the env"):
        estimate(mlp(), 2).layers  # noqa: B018


@pytest.mark.parametrize(("gpus", "rows"), [("4", 4), ("0,2", 2), ("GPU:1,GPU:0", 2)])
def test_the_command_estimates_for_gpus_that_the_machine_does_not_have(tmp_path, gpus, rows):
    mlp().save(tmp_path / "mlp.keras")
    command = ["-m", "multigpu", "estimate", str(tmp_path / "mlp.keras"), "--gpus", gpus, "--optimizer", "adam"]
    done = subprocess.run([sys.executable, *command, "--json"], capture_output=True, text=True, check=True)
    estimated = json.loads(done.stdout)["devices"]
    assert len(estimated) == rows
    assert estimated[0]["weights"] == estimate(mlp(), rows, 32, "adam")[0].weights
