"""Data, callbacks and loops on several workers: global batches, common decisions, one handshake."""

import re

import numpy as np
import pytest
import runs
import tensorflow as tf
from equality import FLOAT32
from worker_processes import results

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.multi_worker.auto_shard import sharded


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    runs.write_files(folder)
    return str(folder)


@pytest.fixture(scope="module")
def workers(files):
    """What each of two workers with one device gets, of every run."""
    return results("runs", "all_runs", files, anew=True)


@pytest.fixture(scope="module")
def one_device(files):
    return runs.datasets(files, parallel=False)


def assert_same(actual, expected):
    # not the steps: where Keras on one device finds no more data, it has counted one more step already
    assert actual["history"].keys() == expected["history"].keys()
    for name, values in expected["history"].items():
        np.testing.assert_allclose(actual["history"][name], values, err_msg=name, **FLOAT32)
    for weight, other in zip(actual["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(weight, other, **FLOAT32)


@pytest.mark.quick
def test_two_workers_have_the_weights_of_one_device():
    expected = runs.resumable(None, gpus=None)
    for weights in results("runs", "resumable", None):
        for weight, other in zip(weights, expected, strict=True):
            np.testing.assert_allclose(weight, other, **FLOAT32)


@pytest.mark.parametrize(
    "kind",
    ["known length", "unknown length", "steps_per_epoch", "arrays in steps", "class weights", "tensors", "files"],
)
def test_data_that_all_have_make_the_global_batches_of_one_device(workers, one_device, kind):
    for worker in workers:
        assert_same(worker["datasets"][kind], one_device[kind])


def test_of_files_each_worker_reads_other_rows_and_all_together_every_row_once(files):
    batches = runs.global_batches_of_files(files)
    assert len(batches) == 4
    rows = np.concatenate([x for x, _ in batches])
    np.testing.assert_allclose(np.unique(rows, axis=0), np.unique(runs.X[: runs.IN_FILES], axis=0), rtol=1e-6)


def test_of_files_beside_other_data_each_worker_gets_a_part_of_each_batch(tmp_path):
    runs.write_files(tmp_path)
    lines = tf.data.TextLineDataset(str(tmp_path / "a.csv"))  # which cannot be dealt by files
    numbered = tf.data.Dataset.zip((tf.data.Dataset.range(11), lines)).batch(8)
    workers = [Cluster(("a", "b"), ("a", "b"), number) for number in range(2)]
    dealt = [[part.data[0].numpy().tolist() for part in sharded(numbered, worker)] for worker in workers]
    assert dealt == [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7], [10]]]


@pytest.mark.parametrize("kind", ["a dataset", "a dataset of unknown length", "a generator", "a PyDataset"])
def test_workers_with_data_of_their_own_stand_by_until_the_last_has_ended(workers, kind):
    data = runs.given_in_turn(runs.global_batches_of_own_data())
    expected = runs.trained(data, epochs=1 if kind == "a generator" else 2, parallel=False)
    for worker in workers:
        assert_same(worker["own_data"][kind], expected)
        assert worker["own_data"][kind]["steps"] == 5 * len(expected["history"]["loss"])


def test_workers_that_know_their_rows_have_the_numbers_of_one_device():
    """The shapes in a worker's gradients are known if its slices are equal."""
    batches = runs.given_in_turn(runs.batches_of_known_rows())
    expected = runs.trained(batches, epochs=2, parallel=False, build=runs.synchronized_statistics)
    for worker in results("runs", "known_rows", devices=2):
        assert_same(worker, expected)


def test_functions_that_give_batches_such_as_those_of_r_are_each_workers_own(workers):
    data = runs.given_in_turn(runs.global_batches_of_own_data()[:2])
    expected = runs.trained(data, epochs=1, parallel=False)
    for worker in workers:
        assert_same(worker["own_data"]["a function"], expected)


def test_callbacks_decide_alike_by_aggregated_logs(workers):
    first, second = (worker["callbacks"]["monitored"] for worker in workers)
    assert first["history"] == second["history"]
    assert len(first["history"]["loss"]) == 4  # of 9: stopped early
    assert first["history"]["learning_rate"][-1] < first["history"]["learning_rate"][0]


def test_the_chief_alone_writes_files(workers):
    assert [worker["callbacks"]["files"] for worker in workers] == [["0.csv", "0.keras"], []]


@pytest.mark.parametrize(
    ("kind", "steps"), [("stopped at a batch", 2), ("stopped by NaN", 1), ("stopped at an epoch", 8)]
)
def test_when_one_worker_stops_all_stop_at_the_same_step(workers, kind, steps):
    assert [worker["callbacks"][kind]["steps"] for worker in workers] == [steps, steps]


def test_a_callback_may_evaluate_after_the_last_batch_of_an_epoch(workers):
    for worker in workers:
        assert worker["callbacks"]["evaluating"]["steps"] == 2 * len(runs.global_batches_of_own_data())


def test_workers_with_fewer_files_are_not_waited_for(workers):
    assert [worker["datasets"]["three files"]["steps"] for worker in workers] == [4, 4]


def test_a_training_loop_of_ones_own_has_the_weights_of_one_device(workers):
    expected = runs.loop(parallel=False)
    for worker in workers:
        for weight, other in zip(worker["loop"], expected, strict=True):
            np.testing.assert_allclose(weight, other, **FLOAT32)


def test_logs_of_a_step_of_ones_own_that_are_no_metrics_are_averaged(workers):
    first, second = (worker["own_step"] for worker in workers)
    assert first == second
    assert first["number"] == [0.5, 0.5]


def test_all_take_the_seeds_of_the_chief_at_fit(workers):
    """Rows are dealt alike, and noise that no seed tells is the same, although worker 1 has set other seeds."""
    expected = runs.seeds_apart(parallel=False)
    for worker in workers:
        for value, other in zip(worker["seeds_apart"], expected, strict=True):
            np.testing.assert_allclose(value, other, **FLOAT32)


def test_workers_draw_the_noise_of_one_device_and_keep_the_same_state(workers):
    expected = runs.noise(parallel=False)
    drawn = np.concatenate([worker["noise"]["drawn"] for worker in workers])
    np.testing.assert_array_equal(drawn, expected["drawn"])
    for variable, other in zip(*(worker["noise"]["variables"] for worker in workers), strict=True):
        np.testing.assert_array_equal(variable, other)


MESSAGES = {
    "model": r"Expected the same program on all workers. Received: variable 0 of the model: \S+/wide/kernel \(3, 5\) "
    r"float32 trainable=True on worker 1 at 127.0.0.1:\d+, and \S+/wide/kernel \(3, 4\) .* on worker 0 at .* Install",
    "version": r"Received: multigpu: 0.1 on worker 1 at 127.0.0.1:\d+, and 0.0 on worker 0 at .* Install the",
    "arrays": r"Expected the same arrays and the same `batch_size` on all .* Received: 2. rows in batches of 8 here, "
    r"and 2. in batches of 8 on worker \d at .* Pass all rows everywhere; or",
    "nothing": r"Expected data on all workers. Received: no batch on worker 1 at \S+\. Use fewer workers",
    "length": r"Expected data of known length .* Received: steps_per_execution=2 and .* Pass `steps_per_epoch`, or",
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_differs_is_refused_on_all_workers_by_name(workers, kind):
    for worker in workers:
        assert re.search(MESSAGES[kind], worker["unlike"][kind], re.DOTALL), worker["unlike"][kind]


def test_all_begin_with_the_chiefs_weights_and_deal_rows_alike(workers):
    chief, other = (worker["weights_alike"] for worker in workers)
    assert not np.array_equal(chief["own"][0], other["own"][0])
    for kind in ("begun", "trained"):
        for weight, expected in zip(other[kind], chief[kind], strict=True):
            np.testing.assert_array_equal(weight, expected)
    np.testing.assert_array_equal(chief["begun"][0], chief["own"][0])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("optimizer", r'Received: optimizer: {"Adagrad": .*} on worker 1 at \S+, and {"SGD": .*} on worker 0 at '),
        ("momentum", r'Received: optimizer: .*"momentum": 0\.8,.* on worker 1 at \S+, and .*"momentum": 0\.9'),
        ("loss", r'Received: loss: "mae" on worker 1 at \S+, and "mse" on worker 0 at \S+ Call `compile\(\)` and `fit'),
        ("steps", r"Received: steps_per_epoch: 3 on worker 1 at \S+, and 2 on"),
        ("validation_freq", r"Received: validation_freq: 2 on worker 1 at \S+, and 1 on"),
        ("initial_epoch", r"Received: initial_epoch: 1 on worker 1 at \S+, and 0 on"),
        ("epochs", r"Received: epochs: 3 on worker 1 at \S+, and 2 on"),
        ("batch_size", r"Received: batch_size: 8 on worker 1 at \S+, and 32 on"),
        ("shuffle", r"Received: shuffle: False on worker 1 at \S+, and True on"),
        ("metrics", r'Received: metrics: \["mae"\] on worker 1 at \S+, and \["mse"\] on'),
        ("run_eagerly", r"Received: run_eagerly: true on worker 1 at \S+, and false on"),
        ("layer", r'Received: layer \d: .*"activation": "relu".* on worker 1 at \S+, and .*"activation": "tanh"'),
        ("validation", r"Received: validation: True on worker 1 at \S+, and False on"),
        ("learning rate", "^$"),
        ("schedule", "^$"),
    ],
)
def test_workers_that_train_in_other_ways_are_refused_by_name(workers, kind, message):
    for worker in workers:
        assert re.search(message, worker["settings_apart"]["errors"][kind])


def test_the_chief_alone_prints(workers):
    chief, other = (worker["settings_apart"]["printed"] for worker in workers)
    assert "loss: " in chief
    assert other == ""


def test_the_learning_rate_is_the_chiefs(workers):
    chief, other = (worker["settings_apart"]["weights"] for worker in workers)
    for weight, expected in zip(other, chief, strict=True):
        np.testing.assert_array_equal(weight, expected)
