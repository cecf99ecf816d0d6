"""Several workers, each with its own devices, have the numbers of one device on the joint batches."""

import functools
import re

import pytest
from cluster_trainings import OPTIMIZERS, SLICED, TRAININGS, train_all
from equality import FLOAT32, assert_same_numbers
from workers import results

pytestmark = pytest.mark.xdist_group("several workers")  # so that the workers run once
PLACES = [(2, 1), (2, 2), (4, 1), (4, 2)]  # workers, devices of each


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: "{} workers with {} devices".format(*place))
def workers(request):
    processes, devices = request.param
    names = [*TRAININGS, *OPTIMIZERS, *SLICED]
    return results(
        "cluster_trainings", "train_all", names, devices, processes=processes, devices=devices
    ), request.param


@functools.cache
def one_process(name, gpus):
    return train_all([name], gpus)[name]


@pytest.mark.parametrize("name", [*TRAININGS, *OPTIMIZERS])
def test_trainings_are_those_of_one_device(workers, name):
    assert_numbers(workers[0], name, one_process(name, None))


@pytest.mark.parametrize("name", SLICED)
def test_statistics_of_slices_are_those_of_as_many_devices_of_one_process(workers, name):
    numbers, (processes, devices) = workers
    assert_numbers(numbers, name, one_process(name, processes * devices))


def assert_numbers(workers, name, expected):
    for worker in workers:
        assert not isinstance(worker[name], str), worker[name]
        assert_same_numbers(worker[name], expected, **FLOAT32)


def test_workers_with_other_devices_are_refused_by_name():
    for message in results("cluster_runs", "other_devices", devices=2):
        assert re.search(r"Received: devices: CPU:0, CPU:1 on worker 1 at \S+, and CPU:0 on worker 0 at ", message)
