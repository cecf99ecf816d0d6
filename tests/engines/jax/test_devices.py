"""Which devices are at work, and what is refused: the words are those of the engine on TensorFlow."""

import importlib
import re
import subprocess
import sys

import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers

import multigpu
from multigpu import engines
from multigpu.engines.jax.device_table import device_table
from multigpu.engines.jax.devices import make_mesh, prime_factors


def build():
    return keras.Sequential([keras.Input((5,)), layers.Dense(3)])


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        (None, [f"CPU:{number}" for number in range(8)]),
        (3, ["CPU:0", "CPU:1", "CPU:2"]),
        ([5, 2], ["CPU:5", "CPU:2"]),
        (["GPU:0", "/cpu:3"], ["CPU:0", "CPU:3"]),
    ],
)
def test_gpus_are_counted_and_named(gpus, names):
    parallel = multigpu.multi_gpu_model(build(), gpus)
    assert list(parallel.plan.devices) == names
    assert len(parallel(keras.ops.ones((120, 5))).sharding.device_set) == len(names)


@pytest.mark.parametrize(
    ("gpus", "error", "says"),
    [
        (1, multigpu.TooFewGPUsError, "call `multi_gpu_model` with `gpus >= 2`"),
        (9, multigpu.TooFewGPUsError, "However this machine only has: .*Try reducing `gpus`"),
        ([0, 0], ValueError, "each device once"),
        ("two", ValueError, "None, a whole number of GPUs, or a list"),
        ([[0, 1], [2, 3]], ValueError, "a list of groups.*KERAS_BACKEND=tensorflow"),
    ],
)
def test_other_gpus_are_refused(gpus, error, says):
    with pytest.raises(error, match=says):
        multigpu.multi_gpu_model(build(), gpus)


def test_an_unbuilt_model_is_refused():
    with pytest.raises(ValueError, match="Expected a built model"):
        multigpu.multi_gpu_model(keras.Sequential([layers.Dense(3)]), 2)


def test_a_parallel_model_is_refused():
    with pytest.raises(ValueError, match=r"parallel already.*Pass `parallel\.template`"):
        multigpu.multi_gpu_model(multigpu.multi_gpu_model(build(), 2), 2)


def test_parts_on_devices_are_refused():
    with pytest.raises(ValueError, match=r"on_device.*on JAX.*KERAS_BACKEND=tensorflow"):
        multigpu.on_device("GPU:0")


def test_a_distribution_of_keras_is_refused():
    parallel = multigpu.multi_gpu_model(build(), 2)
    parallel.compile("sgd", "mse")
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))
    try:
        for used in (lambda: multigpu.multi_gpu_model(build(), 2), lambda: parallel.fit(keras.ops.ones((4, 5)))):
            with pytest.raises(ValueError, match=r"no `keras.distribution` to be set.*DataParallel.*Unset it"):
                used()
    finally:
        keras.distribution.set_distribution(None)


def test_a_device_to_come_home_to_has_to_be_there():
    model = build()
    with pytest.raises(ValueError, match=r"Expected `device` to be one of .*Received: device='GPU:9'"):
        multigpu.bring_home(model, "GPU:9")
    multigpu.bring_home(multigpu.multi_gpu_model(model, 2), "GPU:3")
    assert model.variables[0].value.sharding.device_set == {jax.devices()[3]}


def test_devices_cannot_be_made_when_jax_has_started():
    with pytest.raises(RuntimeError, match=r"before JAX uses a device.*started with CPU:0, CPU:1"):
        multigpu.simulate_gpus(16)


@pytest.mark.parametrize(("number", "factors"), [(1, []), (2, [2]), (7, [7]), (12, [2, 2, 3])])
def test_a_mesh_has_an_axis_for_each_prime_factor(number, factors):
    assert prime_factors(number) == factors


def test_a_mesh_has_the_devices_in_their_order():
    mesh = make_mesh(["CPU:4", "CPU:0", "CPU:2", "CPU:1", "CPU:3", "CPU:5"], [0])
    assert mesh.devices.shape == (2, 3)
    assert [device.id for device in mesh.devices.flat] == [4, 0, 2, 1, 3, 5]


def test_the_table_of_devices_has_those_that_are_counted():
    table = device_table()
    assert [(row.id, row.name, row.memory_total) for row in table] == [(n, f"CPU:{n}", None) for n in range(8)]
    assert "CPU:7, cpu" in table.text()


def test_steps_are_measured_and_leave_everything_as_it_was():
    model = build()
    parallel = multigpu.multi_gpu_model(model, 4)
    parallel.compile("adam", "mse")
    before = model.get_weights()
    measured = multigpu.measure(parallel, random_rows(12, 5), random_rows(12, 3), batch_size=6, steps=2, verbose=0)
    assert measured.speed_up > 0
    assert all(map(np.array_equal, model.get_weights(), before))


WITHOUT = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"

class Sought:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print("sought")

sys.meta_path.insert(0, Sought())
import multigpu, numpy
multigpu.simulate_gpus(2)
import keras
x, y, file = numpy.ones((5, 4)), numpy.ones((5, 2)), sys.argv[1]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
parallel = multigpu.multi_gpu_model(model, 2)
parallel.compile("adam", "mse")
parallel.fit(x, y, verbose=0)
parallel.evaluate(x, y, verbose=0)
parallel.predict(x, verbose=0)
parallel.save_weights(f"{file}.weights.h5")
parallel.load_weights(f"{file}.weights.h5")
multigpu.estimate(model, 2)
parallel.overview()
print("done")
parallel.save(f"{file}.keras")
"""


def test_tensorflow_is_not_sought_until_keras_does_so_for_a_keras_file(tmp_path):
    """Where it is installed, it would be imported: it takes seconds, and the memory of the GPUs."""
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\nsought\n", done.stderr


def test_the_engine_has_the_names_of_the_page_and_no_other():
    table = " ".join(line.split("|")[1] for line in engines.__doc__.splitlines() if "|" in line)
    listed = sorted(re.findall(r"`(\w+)`", table))
    names = vars(importlib.import_module("multigpu.engines.jax.names"))
    assert sorted(name for name in names if not name.startswith("_")) == listed
    assert all(getattr(engines, name) is not None for name in listed)
