"""Several workers, each with its own devices, have the numbers of one device on the joint batches."""

import pytest
from cluster_trainings import OPTIMIZERS, TRAININGS, train_all
from equality import FLOAT32, assert_same_numbers
from workers import results

BY_FOUR = ["synchronized statistics", "several inputs and outputs"]


@pytest.fixture(scope="module")
def by_two_with_two_devices():
    return results("cluster_trainings", "train_all", [*TRAININGS, *OPTIMIZERS], 2, devices=2)


@pytest.fixture(scope="module")
def by_four_with_one_device():
    return results("cluster_trainings", "train_all", BY_FOUR, 1, processes=4)


@pytest.mark.parametrize("name", [*TRAININGS, *OPTIMIZERS])  # with one device: `test_workers_data.py`
def test_trainings_on_two_workers_with_two_devices(by_two_with_two_devices, name):
    assert_numbers_of_one_device(by_two_with_two_devices, name)


@pytest.mark.parametrize("name", BY_FOUR)
def test_trainings_on_four_workers_of_which_some_stand_by(by_four_with_one_device, name):
    assert_numbers_of_one_device(by_four_with_one_device, name)


def assert_numbers_of_one_device(workers, name):
    one_device = train_all([name], None)[name]
    for worker in workers:
        assert not isinstance(worker[name], str), worker[name]
        assert_same_numbers(worker[name], one_device, **FLOAT32)
