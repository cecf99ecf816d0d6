"""Several workers, each with its own devices, have the numbers of one device on the joint batches."""

import os
import re
import subprocess
import sys

import pytest
from cluster_trainings import OPTIMIZERS, SLICED, TRAININGS, train_all
from equality import FLOAT32, assert_same_numbers
from workers import PYTHON, results

from multigpu.cluster.launch import local_configs

# four workers take four times the time: those trainings in which most meets
BY_FOUR = ("validation", "sample weights", "masks", "synchronized statistics", "several inputs and outputs")


@pytest.mark.parametrize(
    ("processes", "devices", "names"),
    [
        (2, 1, TRAININGS),
        (2, 2, {**TRAININGS, **OPTIMIZERS}),
        (4, 1, BY_FOUR),
        (4, 2, BY_FOUR),
    ],
)
def test_trainings_are_those_of_one_device(processes, devices, names):
    """All in one test: workers take their time to start."""
    together = [*names, *SLICED]
    workers = results("cluster_trainings", "train_all", together, devices, processes=processes, devices=devices)
    # statistics of slices are those of as many devices of one process
    expected = {**train_all([*names], None), **train_all([*SLICED], processes * devices)}
    differences = {
        (name, number): difference(worker[name], expected[name])
        for number, worker in enumerate(workers)
        for name in together
    }
    assert not any(differences.values()), "\n\n".join(f"{where}: {what}" for where, what in differences.items() if what)


def difference(numbers, expected) -> str:
    """What two trainings differ in, or the error in which one ended; empty where they are the same."""
    for side in (numbers, expected):
        if isinstance(side, str):
            return side
    try:
        assert_same_numbers(numbers, expected, **FLOAT32)
    except AssertionError as error:
        return str(error) or repr(error)
    return ""


def test_a_difference_is_told():
    numbers = train_all(["sample weights", "validation"], None)
    assert not difference(numbers["validation"], numbers["validation"])
    assert "only on one side" in difference(numbers["sample weights"], numbers["validation"])
    assert "KeyError" in difference(numbers["validation"], train_all(["not known"], None)["not known"])


def test_workers_with_other_devices_are_refused_by_name():
    for message in results("cluster_runs", "other_devices", devices=2):
        assert re.search(r"Received: devices: CPU:0, CPU:1 on worker 1 at \S+, and CPU:0 on worker 0 at ", message)


BY_SLURM = """
import keras, multigpu, tensorflow as tf

slurm = tf.distribute.cluster_resolver.SlurmClusterResolver
resolver = slurm(port_base={port}, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False)
multigpu.join_cluster(resolver)
multigpu.join_cluster(resolver)  # once more, which changes nothing
model = multigpu.multi_gpu_model(keras.Sequential([keras.Input((3,)), keras.layers.ReLU()]), gpus=1)  # no weights
print(model.plan.cluster, model.plan.cluster.addresses)
"""


def test_workers_that_a_resolver_of_tensorflow_finds_join():
    """A script of one's own, in a step of SLURM with two tasks on this machine."""
    port = int(local_configs(1)[0].split("127.0.0.1:")[1].split('"')[0])
    step = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NUM_TASKS": "2"}
    common = {**os.environ, **step, "PYTHONPATH": str(PYTHON), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", BY_SLURM.format(port=port)]
    workers = [
        subprocess.Popen(command, env={**common, "SLURM_PROCID": str(number)}, stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    printed = [worker.communicate(timeout=200)[0] for worker in workers]
    addresses = (f"localhost:{port}", f"localhost:{port + 1}")
    for number, text in enumerate(printed):
        assert text.splitlines()[-1:] == [f"worker {number} of 2 {addresses}"]
