"""Sums over workers are made where the weights are, and know tensors of other shapes from each other."""

import numpy as np
import pytest
import sums
import tensorflow as tf
from worker_processes import results

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.multi_worker import step


@pytest.fixture(scope="module")
def workers():
    """What each of two workers with three devices gets."""
    return results("sums", "all_sums", devices=3)


def test_gradients_are_summed_on_the_devices_that_own_the_weights(workers):
    for places in (worker["places"] for worker in workers):
        assert set(places["owners"]) == {"CPU:1", "CPU:2"}
        assert set(places["sums"]) == {"CPU:0", "CPU:1", "CPU:2"}  # on CPU:0 the numbers of rows


def test_metrics_of_a_worker_that_stands_by_are_kept_where_they_are(workers):
    for places in (worker["places"] for worker in workers):
        assert not places["numbers"]


def test_single_numbers_are_summed_on_the_host(monkeypatch):
    """Where a loss is taken, there may be a GPU: and a group of TensorFlow's is of one kind of device."""
    monkeypatch.setattr(step, "group_sum", lambda x, *_: tf.identity(x))
    with tf.device("CPU:1"):
        total = step.StepConsensus(Cluster(("a", "b"), ("a:1", "b:1"), 0)).sum(tf.constant(1.0), "divisor")
    assert total.device.endswith("CPU:0")


def test_sums_leave_no_threads_behind(workers):
    for worker in workers:
        assert worker["threads"] < 25  # of 25 steps with two sums or more in each


def test_batches_of_changing_widths_have_the_loss_of_one_device(workers):
    expected = sums.losses_of_changing_widths(gpus=None)
    for worker in workers:
        np.testing.assert_allclose(worker["losses"], expected, rtol=1e-4)
