"""Several workers, each with its own devices, have the numbers of one device on the global batches."""

import os
import re
import subprocess

import pytest
from cases import soak
from equality import FLOAT32, assert_same_numbers
from forked_python import python
from training_cases import OPTIMIZERS
from trainings import GROUPED, ROWS, SLICED, TRAININGS, train_all
from worker_processes import PYTHON, results

from multigpu.cli.launch import free_ports
from multigpu.cluster import schedulers

# the others: one more function of the batch, and an optimizer that does not ask who takes part
MOST = [
    name for name in TRAININGS if name not in ("functions that give one number, of logits", "gradients of two steps")
]


@pytest.mark.parametrize(
    ("names", "processes", "devices"),
    [([*MOST, *GROUPED, *[*OPTIMIZERS][:1]], 2, 2), (["masks", "clipped, with a large table"], 4, 1)],
    ids=["2-2", "4-1"],
)
def test_trainings_are_those_of_one_device(names, processes, devices):
    """All in one test: workers take their time to start. `make soak` has the other pairs, and optimizers."""
    found = differences(names, processes, devices)
    assert not found, "\n\n".join(f"{where}: {what}" for where, what in found.items())


def differences(names: list[str], processes: int, devices: int) -> dict[tuple[str, int], str]:
    """What is not as on one device, by training and worker."""
    sliced = [*SLICED] if ROWS % (processes * devices) == 0 else []
    together = [*names, *sliced]
    workers = results("trainings", "train_all", together, devices, processes=processes, devices=devices)
    # statistics of slices are those of as many devices of one process
    expected = {**train_all(names, None), **train_all(sliced, processes * devices)}
    found = {
        (name, number): difference(worker[name], expected[name])
        for number, worker in enumerate(workers)
        for name in together
    }
    return {where: what for where, what in found.items() if what}


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


@pytest.mark.parametrize("devices", [1, soak(2)])
def test_the_first_batches_of_models_that_mix_rows_are_refused_on_every_worker(devices):
    for errors in results("runs", "first_batches", devices, devices=devices):
        for name, of_both in errors.items():
            for error in of_both:
                assert "Received: layer 'mixes'. With rows 0 to " in error, name


def test_a_difference_is_told():
    numbers = train_all(["sample weights", "validation"], None)
    assert not difference(numbers["validation"], numbers["validation"])
    assert "only on one side" in difference(numbers["sample weights"], numbers["validation"])
    assert "KeyError" in difference(numbers["validation"], train_all(["not known"], None)["not known"])


def test_workers_with_other_devices_are_refused_by_name():
    for message in results("runs", "other_devices", devices=2):
        assert re.search(r"Received: devices: CPU:0, CPU:1 on worker 1 at \S+, and CPU:0 on worker 0 at ", message)


JOINED = """
import socket
import keras, multigpu, tensorflow as tf

{}
model = multigpu.multi_gpu_model(keras.Sequential([keras.Input((3,)), keras.layers.ReLU()]), gpus=1)  # no weights
cluster = model.plan.cluster
port = int(cluster.addresses[cluster.number].rpartition(":")[2])
socket.create_connection(("127.0.0.2", port), 5).close()  # as SECURITY.md says: not on 127.0.0.1 alone
print(cluster, cluster.addresses)
"""
RESOLVED = """
slurm = tf.distribute.cluster_resolver.SlurmClusterResolver
resolver = slurm(port_base={}, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False)
multigpu.join_cluster(resolver)
multigpu.join_cluster(resolver)  # once more, which changes nothing
"""
STEP = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NUM_TASKS": "2"}
MPIRUN = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": str(os.getpid())}


def printed_by_tasks(script, rank, common):
    """The last line of each of two tasks that a scheduler numbers in the variable `rank`."""
    common = {**os.environ, **common, "PYTHONPATH": str(PYTHON), "CUDA_VISIBLE_DEVICES": "-1"}
    workers = [
        subprocess.Popen(
            [*python(), "-c", script], env={**common, rank: str(number)}, stdout=subprocess.PIPE, text=True
        )
        for number in range(2)
    ]
    return [worker.communicate(timeout=200)[0].splitlines()[-1] for worker in workers]


@pytest.mark.parametrize(
    ("rank", "common", "host"),
    [("SLURM_PROCID", STEP, "localhost"), ("OMPI_COMM_WORLD_RANK", MPIRUN, "127.0.0.1")],
    ids=["srun", "mpirun"],
)
def test_tasks_that_a_scheduler_has_started_join_where_they_ask_to(rank, common, host):
    """The same script as on one machine, started with `srun python` or `mpirun python`."""
    port = free_ports(1)[0]
    if rank == "SLURM_PROCID":
        common = {**common, "SLURM_STEP_RESV_PORTS": f"{port}-{port + 1}"}
    else:
        port = int(re.search(r":(\d+)", schedulers.config_of_tasks({**common, rank: "0"}))[1])
    addresses = (f"{host}:{port}", f"{host}:{port + 1}")
    printed = printed_by_tasks(JOINED.format("multigpu.join_cluster()"), rank, common)
    assert printed == [f"worker {number} of 2 {addresses}" for number in range(2)]


def test_workers_that_a_resolver_of_tensorflow_finds_join():
    """A script of one's own, in a step of SLURM with two tasks on this machine."""
    port = free_ports(1)[0]
    addresses = (f"localhost:{port}", f"localhost:{port + 1}")
    printed = printed_by_tasks(JOINED.format(RESOLVED.format(port)), "SLURM_PROCID", STEP)
    assert printed == [f"worker {number} of 2 {addresses}" for number in range(2)]
