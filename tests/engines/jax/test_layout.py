"""Large variables are divided: each device holds 1/N of weights, slots and averages, and says so."""

import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from jax.sharding import PartitionSpec
from keras import layers

import multigpu
from multigpu.engines.jax.devices import make_mesh
from multigpu.engines.jax.layout import Layout, put
from multigpu.engines.jax.rows import Rows, open_rows, send

NAMES = [f"CPU:{number}" for number in range(8)]
AXES = ("gpus2", "gpus1", "gpus0")


def make_layout():
    mesh = make_mesh(NAMES, [0])
    return Layout(mesh, mesh)


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((64, 128), PartitionSpec(None, AXES)),
        ((3, 3, 64, 32), PartitionSpec(None, None, AXES)),
        ((64, 64), PartitionSpec(None, AXES)),
        ((2, 12, 333), PartitionSpec(("gpus0",), ("gpus2", "gpus1"), None)),
        ((7, 999), PartitionSpec(None, None)),
        ((8, 8), PartitionSpec()),
        ((), PartitionSpec()),
    ],
)
def test_the_largest_axis_that_the_devices_divide_is_divided(shape, spec):
    assert make_layout().in_step(np.empty(shape)).spec == spec


def test_a_worker_with_one_device_has_whole_arrays():
    layout = Layout(make_mesh(NAMES, [0]), make_mesh(NAMES[:1], [0]))
    assert layout.in_step(np.empty((64, 128))).spec == PartitionSpec()


@pytest.mark.parametrize(("count", "parts"), [(8, 8), (4, 1), (12, 1), (7, 1), (1, 1), (80, 8)])
def test_each_device_has_an_equal_part_of_the_rows_or_all(count, parts):
    shard = make_layout().rows(count).shard_shape((count, 3))
    assert shard == (count // parts, 3)


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 8, 11])
def test_a_batch_that_is_sent_and_opened_is_the_batch(rows, fill):
    layout = make_layout()
    batch = {"x": random_rows(rows, 3), "y": (np.arange(rows), None), "scalar": np.float32(2)}
    sent = send(batch, layout, None if fill else layout.rows)
    opened = jax.jit(lambda batch: open_rows(batch, layout))(sent)
    jax.tree.map(np.testing.assert_array_equal, opened, batch)
    assert isinstance(sent["x"], Rows)
    assert sent["x"].value.shape[0] == (-(-rows // 8) * 8 if fill else rows)


def test_an_array_that_is_in_its_place_is_the_same_object():
    layout = make_layout()
    there = put(random_rows(8, 8), layout.copied)
    assert put(there, layout.copied) is there


def mlp():
    return keras.Sequential([keras.Input((64,)), *[layers.Dense(256, "relu") for _ in range(3)], layers.Dense(8)])


def conv():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(64, 3, activation="relu")(layers.Conv2D(32, 3, activation="relu")(inputs))
    return keras.Model(inputs, layers.Dense(8)(layers.Flatten()(x)))


def held(device, variables):
    shards = [shard for v in variables for shard in v.value.addressable_shards if shard.device == device]
    return sum(shard.data.nbytes for shard in shards)


@pytest.mark.parametrize("build", [mlp, conv])
def test_each_device_holds_its_part_of_weights_slots_and_averages(build):
    model = build()
    parallel = multigpu.multi_gpu_model(model, 8)
    parallel.compile(keras.optimizers.Adam(use_ema=True), "mse")
    parallel.fit(random_rows(8, *model.input_shape[1:]), random_rows(8, 8), verbose=0)
    variables = [*model.variables, *model.optimizer.variables]
    total = sum(v.value.nbytes for v in variables)
    large = sum(v.value.nbytes for v in variables if v.value.size >= 2048)
    for row, device in zip(parallel.overview(20), jax.devices(), strict=True):
        assert held(device, variables) == pytest.approx(large / 8 + total - large, rel=0.05)
        assert row.weights + row.slots == held(device, variables)
        assert row.rows in (2, 3)


def test_with_cpu_relocation_the_devices_hold_nothing_between_verbs():
    model = mlp()
    parallel = multigpu.multi_gpu_model(model, 8, cpu_relocation=True)
    parallel.compile("adam", "mse")
    parallel.fit(random_rows(8, 64), random_rows(8, 8), verbose=0)
    x = random_rows(6, 64)
    np.testing.assert_allclose(parallel(x), parallel.predict(x, verbose=0), atol=1e-5)
    assert {row.weights + row.slots for row in parallel.overview()} == {0}
    assert {v.value.sharding.device_set == {jax.devices("cpu")[0]} for v in model.variables} == {True}
    assert np.isfinite(keras.ops.convert_to_numpy(model(random_rows(2, 64)))).all()


def test_the_step_keeps_divided_what_is_divided():
    model = mlp()
    parallel = multigpu.multi_gpu_model(model, 8)
    parallel.compile("adam", "mse")
    parallel.fit(random_rows(16, 64), random_rows(16, 8), batch_size=6, verbose=0)
    kernels = [v for v in [*model.variables, *model.optimizer.variables] if v.value.size >= 2048]
    assert len(kernels) == 12
    assert {v.value.sharding.is_fully_replicated for v in kernels} == {False}
