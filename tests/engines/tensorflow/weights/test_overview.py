"""The overview tells what really happens: bytes by the formula, transfers as executed, rows that add up."""

import keras
import numpy as np
import pytest
from executed_graphs import executed

from multigpu import multi_gpu_model, on_device

DEVICES = ["CPU:1", "CPU:2", "CPU:3", "CPU:4"]


def four_equal_layers():
    layers = [keras.layers.Dense(600, use_bias=False) for _ in range(4)]  # each larger than a bucket
    return keras.Sequential([keras.Input((600,)), *layers])


def test_each_device_moves_what_a_ring_all_reduce_moves():
    template = four_equal_layers()
    table = multi_gpu_model(template, gpus=DEVICES).overview()
    total = template.count_params() * 4
    for row in table:
        assert row.weights == total / 4
        assert row.received == row.sent == 2 * (4 - 1) / 4 * total


def test_transfers_are_those_of_the_executed_step():
    template = four_equal_layers()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile(optimizer="sgd", loss="mse")
    x = np.ones((8, 600), "float32")
    run = executed(lambda: parallel.fit(x, x, batch_size=4, verbose=0))
    for row in parallel.overview():
        counted = sum(n for ends, n in run.transfers.items() if row.device in ends)
        beside = 5  # slice and rows, the gradient of its outputs, the learning rate; its outputs
        assert counted == row.transfers + beside


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_rows_add_up_to_the_batch(batch_size):
    table = multi_gpu_model(four_equal_layers(), gpus=3).overview(batch_size)
    assert sum(row.rows for row in table) == batch_size


def test_slots_are_counted_once_the_optimizer_has_them():
    template = four_equal_layers()
    parallel = multi_gpu_model(template, gpus=DEVICES)
    parallel.compile(optimizer="adam", loss="mse")
    assert [row.slots for row in parallel.overview()] == [None] * 4
    parallel.train_on_batch(np.ones((4, 600)), np.ones((4, 600)))
    assert [row.slots for row in parallel.overview()] == [2 * row.weights for row in parallel.overview()]


def test_an_owner_without_a_replica_has_a_row_of_its_own():
    template = four_equal_layers()
    table = multi_gpu_model(template, gpus=DEVICES[:2], cpu_relocation=True).overview()
    assert [(row.device, row.replica) for row in table] == [("CPU:1", 0), ("CPU:2", 1), ("CPU:0", None)]
    total = template.count_params() * 4
    assert [row.received for row in table] == [total, total, 2 * total]  # weights; gradients of two replicas


def test_it_prints_as_a_table():
    text = str(multi_gpu_model(four_equal_layers(), gpus=2).overview(5))
    assert text.splitlines() == [
        "device  replica  rows  weights  optimizer  in per step  out per step  transfers",
        " CPU:0        0     3  2.88 MB          -      5.76 MB       5.76 MB          8",
        " CPU:1        1     2  2.88 MB          -      5.76 MB       5.76 MB          8",
    ]


def test_groups_have_the_weights_of_their_parts_and_send_them_to_other_groups_alone():
    x = keras.Input((600,))
    with on_device("CPU:1"):
        h = keras.layers.Dense(600, use_bias=False)(x)
    with on_device("CPU:2"):
        template = keras.Model(x, keras.layers.Dense(300, use_bias=False)(h))
    pair = multi_gpu_model(template, gpus=[["CPU:1", "CPU:2"]] * 4).overview(10)
    sizes = [4 * 600 * 600, 4 * 600 * 300]
    assert [(row.device, row.replica, row.rows, row.weights, row.received) for row in pair] == [
        ("CPU:1", 0, 10, sizes[0], 0),
        ("CPU:2", 0, 10, sizes[1], 0),
    ]
    two = multi_gpu_model(template, gpus=[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]]).overview(7)
    assert [(row.replica, row.rows) for row in two] == [(0, 4), (0, 4), (1, 3), (1, 3)]
    by_device = {row.device: row for row in two}
    for devices, size in ((("CPU:1", "CPU:3"), sizes[0]), (("CPU:2", "CPU:4"), sizes[1])):
        rows = [by_device[device] for device in devices]
        assert sum(row.weights for row in rows) == size
        assert [row.received for row in rows] == [row.sent for row in rows] == [size, size]  # weights or gradients
