"""Several workers, each with its own devices, have the numbers of one device on the joint batches."""

import re

import pytest
from cluster_trainings import OPTIMIZERS, SLICED, TRAININGS, train_all
from equality import FLOAT32, assert_same_numbers
from workers import results


@pytest.mark.parametrize(
    ("processes", "devices", "names"),
    [
        (2, 1, TRAININGS),
        (2, 2, {**TRAININGS, **OPTIMIZERS}),
        (4, 1, TRAININGS),
        (4, 2, TRAININGS),
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
