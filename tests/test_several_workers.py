"""Several workers, each with its own devices, have the numbers of one device on the joint batches."""

import pytest
from cluster_trainings import OPTIMIZERS, TRAININGS, train_all
from equality import FLOAT32, assert_same_numbers
from workers import results


@pytest.fixture(scope="module")
def trained():
    """What each of two workers with one device gets."""
    return results("cluster_trainings", "train_all", [*TRAININGS, *OPTIMIZERS], 1)


@pytest.fixture(scope="module")
def trained_on_two_devices():
    return results("cluster_trainings", "train_all", [*TRAININGS], 2, devices=2)


@pytest.mark.parametrize("name", [*TRAININGS, *OPTIMIZERS])
def test_two_workers_have_the_numbers_of_one_device(trained, name):
    assert_numbers_of_one_device(trained, name)


@pytest.mark.parametrize("name", TRAININGS)
def test_two_workers_with_two_devices_have_the_numbers_of_one_device(trained_on_two_devices, name):
    assert_numbers_of_one_device(trained_on_two_devices, name)


def assert_numbers_of_one_device(workers, name):
    one_device = train_all([name], None)[name]
    for worker in workers:
        assert not isinstance(worker[name], str), worker[name]
        assert_same_numbers(worker[name], one_device, **FLOAT32)
