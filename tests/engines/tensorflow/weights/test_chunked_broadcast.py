"""A weight far larger than a device's share goes out in pieces: same numbers, and nobody's link carries it twice."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same_training
from executed_graphs import executed

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights import chunked_broadcast
from multigpu.engines.tensorflow.weights.buckets import Bucket, Types
from multigpu.engines.tensorflow.weights.chunked_broadcast import cut, is_chunked, join, transfers_of

DEVICES = ["CPU:1", "CPU:2", "CPU:3"]


def bucket_of(size: int, owner: str = "CPU:1") -> Bucket:
    return Bucket(owner, Types(tf.float32, tf.float32, tf.float32), (0,), ((size,),))


@pytest.mark.parametrize("shape", [(1,), (7,), (8, 3), (5, 1, 2), (16,)])
@pytest.mark.parametrize("num_pieces", [2, 3, 8])
def test_join_undoes_cut_and_pieces_differ_by_one_at_most(shape, num_pieces):
    buffer = tf.reshape(tf.range(np.prod(shape)), shape)
    pieces = cut(buffer, num_pieces)
    sizes = [int(tf.size(piece)) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(join(pieces, shape), buffer)


@pytest.mark.parametrize(
    ("kind", "megabytes", "num_replicas", "expected"),
    [
        ("CPU", [400, 20, 10], 8, [True, True, False]),  # the first is everyone's: the second would be one's alone
        ("CPU", [400, 20, 10], 2, [False] * 3),  # each way has one end only
        ("CPU", [20] * 3, 3, [False] * 3),  # everyone has a share
        ("CPU", [10], 8, [False]),  # not worth it
        ("GPU", [4, 4, 4, 4, 0.1], 8, [True] * 4 + [False]),
        ("GPU", [4, 4, 4, 4, 0.1], 4, [False] * 5),
        ("GPU", [0.1], 8, [False]),
    ],
)
def test_only_what_is_larger_than_a_share_is_cut(kind, megabytes, num_replicas, expected):
    buckets = [bucket_of(int(size * 1_000_000) // 4) for size in megabytes]
    devices = [f"{kind}:{number}" for number in range(num_replicas)]
    assert [is_chunked(bucket, buckets, devices) for bucket in buckets] == expected


@pytest.mark.parametrize("owner", ["CPU:1", "CPU:0"])  # beside a replica, or apart from them
def test_in_pieces_every_replica_gets_a_weight_once_and_it_leaves_its_owner_once(owner):
    large = bucket_of(120_000_000, owner)
    for device in DEVICES:
        moves = transfers_of(large, [large], DEVICES, device)
        received = sum(move.share for move in moves if move.receiver == device)
        assert received == pytest.approx(0 if device == owner else 1)
    sent = sum(move.share for move in transfers_of(large, [large], DEVICES, owner) if move.sender == owner)
    assert sent == pytest.approx(1)


@pytest.fixture
def everything_is_worth_cutting(monkeypatch):
    monkeypatch.setattr(chunked_broadcast, "WORTH_CUTTING", {"CPU": 0})


def lopsided_net() -> keras.Model:
    layers = [keras.layers.Dense(37, activation="tanh"), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((11,)), *layers])


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(23, 11)).astype("float32"), random.normal(size=(23, 2)).astype("float32")


@pytest.mark.usefixtures("everything_is_worth_cutting")
@pytest.mark.parametrize(("gpus", "cpu_relocation"), [(3, True), (8, False), soak(3, False), soak(8, True)])
def test_in_pieces_training_has_the_numbers_of_one_device(gpus, cpu_relocation):
    def compile():
        return {"optimizer": keras.optimizers.Adam(0.02, clipnorm=0.5), "loss": "mse"}

    ways = {"compile": compile, "gpus": gpus, "cpu_relocation": cpu_relocation, "only_fit": True}
    assert_same_training(lopsided_net, *rows(), **ways)


@pytest.mark.usefixtures("everything_is_worth_cutting")
@pytest.mark.parametrize(("cpu_relocation", "with_cpu"), [(False, 0), (True, 2)])  # a piece of one bucket, and back
def test_the_executed_step_moves_the_pieces_that_the_overview_counts(cpu_relocation, with_cpu):
    parallel = multi_gpu_model(lopsided_net(), gpus=DEVICES, cpu_relocation=cpu_relocation)
    parallel.compile(optimizer="sgd", loss="mse")
    run = executed(lambda: parallel.train_on_batch(*rows()))
    table = {row.device: row for row in parallel.overview()}
    assert table["CPU:2"].transfers >= 10  # whole buckets would be 8 at most
    for device in DEVICES:
        between = sum(n for ends, n in run.transfers.items() if device in ends and "CPU:0" not in ends)
        assert between == table[device].transfers - with_cpu
