"""Devices: which are counted, and how to stand in for GPUs. TensorFlow starts once, hence fresh processes."""

import subprocess

import pytest
import tensorflow as tf
from forked_python import python

from multigpu import available_gpus, simulate_gpus
from multigpu.engines.tensorflow.devices.logical import present_device, short_name, visible_devices
from multigpu.plan.device_names import stand_in

EIGHT = [f"CPU:{i}" for i in range(8)]

FRESH = """
import multigpu, tensorflow as tf
multigpu.simulate_gpus(2)
print(multigpu.available_gpus())
multigpu.simulate_gpus(3)  # nothing has started yet: the last word counts
print(multigpu.available_gpus())
multigpu.simulate_gpus(3)  # nothing to change
with tf.device("CPU:2"):
    print(tf.constant(1).device)
"""

STARTED = """
import multigpu, tensorflow as tf
print(tf.constant(1).device, multigpu.available_gpus())
try:
    multigpu.simulate_gpus(2)
except RuntimeError as error:
    print(error)
print(multigpu.available_gpus())
"""


def run_fresh(script):
    """Prints of a script in a process of its own, line by line, on a machine whose GPUs are hidden."""
    code = f"import os; os.environ.update(CUDA_VISIBLE_DEVICES='-1', TF_CPP_MIN_LOG_LEVEL='3')\n{script}"
    done = subprocess.run([*python(), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_before_tensorflow_starts_the_cpu_is_split_into_as_many_devices_as_asked_for():
    first, names, device = run_fresh(FRESH)
    assert first == "['CPU:0', 'CPU:1']"  # asking starts nothing
    assert names == "['CPU:0', 'CPU:1', 'CPU:2']"
    assert device.endswith("CPU:2")


def test_after_tensorflow_has_started_its_devices_are_fixed():
    before, error, after = run_fresh(STARTED)
    assert before.endswith("CPU:0 []")  # one CPU is no GPU
    assert error == (
        "Expected `simulate_gpus()` to be called before TensorFlow uses a device: TensorFlow fixes its devices at "
        "first use. Received: simulate_gpus(2) after TensorFlow had started with CPU:0. Call "
        "`multigpu.simulate_gpus(2)` right after the imports, in a fresh process (in a notebook: restart the kernel)."
    )
    assert after == "[]"


@pytest.mark.quick
def test_simulated_devices_are_counted_in_order_of_their_ids():
    assert available_gpus() == EIGHT
    assert visible_devices() == {"gpus": EIGHT, "others": EIGHT}


def test_simulating_as_many_devices_again_changes_nothing():
    simulate_gpus(8)
    assert available_gpus() == EIGHT


def test_another_number_is_refused_naming_the_devices_there_are():
    with pytest.raises(RuntimeError) as error:
        simulate_gpus(4)
    assert f"Received: simulate_gpus(4) after TensorFlow had started with {', '.join(EIGHT)}." in str(error.value)
    assert available_gpus() == EIGHT


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None, "2", [2]])
def test_a_bad_number_of_devices_is_refused(n):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        simulate_gpus(n)
    assert str(error.value) == (
        f"Expected `n` to be a whole number of 1 or more. Received: n={n!r}. Use `simulate_gpus(2)`."
    )


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1"),
        ("/device:CPU:0", "CPU:0"),
        ("/gpu:1", "GPU:1"),
        ("cpu:3", "CPU:3"),
        ("GPU", "GPU:0"),
    ],
)
def test_a_device_has_one_short_name(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    "name", ["nonsense:x:y:z", 3, "GPU:*", "/job:other/task:3/device:CPU:0", "/replica:1/device:CPU:0"]
)
def test_a_name_that_means_no_one_device_is_none(name):
    with pytest.raises(ValueError, match=r"not the name of a device.*: ['3]"):
        short_name(name)


def test_simulated_devices_answer_to_the_names_of_gpus_and_one_cpu_does_not():
    assert stand_in("GPU:7", EIGHT) == "CPU:7"
    assert present_device("/gpu:3", "") == "CPU:3"
    for name, gpus in [("GPU:8", EIGHT), ("CPU:1", EIGHT), ("GPU:0", ["CPU:0"]), ("GPU:0", []), ("GPU:0", ["GPU:0"])]:
        assert stand_in(name, gpus) == name


def test_several_gpus_are_not_split(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [object()] * 2)
    with pytest.raises(
        ValueError, match=r"Expected one GPU or none to simulate 3 GPUs.* 2 GPUs. Use these, `multi_gpu_m"
    ):
        simulate_gpus(3)
