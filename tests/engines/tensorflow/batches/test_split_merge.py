"""The law of split and merge: `merge(split(x, n)) == x`, for all kinds of tensors, batch sizes and replicas."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from cases import soak, some

from multigpu.engines.tensorflow.batches.split_merge import count_rows, drop_standby, merge, share_rows, split
from multigpu.plan.plan import Plan

BATCH_SIZES = range(1, 21)
NUM_REPLICAS = [1, 2, 3, soak(4), soak(5), soak(6), soak(7), 8]


def dense(n):
    return tf.reshape(tf.range(n * 6, dtype=tf.float32), (n, 2, 3))


def whole_numbers(n):
    return tf.range(n)


def flags(n):
    return tf.range(n) % 3 == 0


def strings(n):
    return tf.constant([[f"row {i}", ""] for i in range(n)])


def no_columns(n):
    return tf.zeros((n, 0))


def ragged(n):
    return tf.RaggedTensor.from_row_lengths(tf.range(sum(i % 4 for i in range(n))), [i % 4 for i in range(n)])


@functools.cache  # TensorFlow makes it in Python, number by number
def ragged_twice(n):
    return tf.ragged.constant([[[i] * (j % 2) for j in range(i % 3)] for i in range(n)], ragged_rank=2, dtype=tf.int32)


def sparse(n):
    rows = np.arange(n, dtype="int64")
    kept = rows[rows % 3 != 1]  # some rows have no entry
    return tf.SparseTensor(np.stack([kept, kept % 4], axis=1), kept.astype("float32") + 1, (n, 4))


KINDS = [dense, whole_numbers, flags, strings, no_columns, ragged, ragged_twice, sparse]


@functools.cache
def through_replicas(num_replicas, kind):
    """Batch → what it is after split and merge, rows that each replica works on, and rows that count."""

    @tf.function(input_signature=[open_spec(kind(2))])
    def function(x):
        shares = share_rows(count_rows([x]), num_replicas)
        slices = split(x, shares)
        merged = merge([drop_standby(piece, rows.kept) for piece, rows in zip(slices, shares, strict=True)])
        return merged, [count_rows([piece]) for piece in slices], [rows.kept for rows in shares]

    return function


def open_spec(x):
    """The type of `x` with an open batch axis, so that one trace serves all batch sizes."""
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, *x.shape[1:]], x.dtype, x.ragged_rank)
    spec = tf.SparseTensorSpec if isinstance(x, tf.SparseTensor) else tf.TensorSpec
    return spec([None, *x.shape[1:]], x.dtype)


def in_rows(x):
    """Any tensor as plain Python values."""
    if isinstance(x, tf.SparseTensor):
        return x.indices.numpy().tolist(), x.values.numpy().tolist(), x.dense_shape.numpy().tolist()
    return x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy().tolist()


@pytest.mark.parametrize(
    ("kind", "num_replicas"),
    some(
        itertools.product(KINDS, range(1, 9)),
        [*zip(KINDS, [3, 8, 1, 2, 8, 3, 2, 8], strict=True), (ragged, 8), (sparse, 3)],
    ),
)
def test_merge_undoes_split(kind, num_replicas):
    function = through_replicas(num_replicas, kind)
    for n in BATCH_SIZES:
        x = kind(n)
        merged, _, _ = function(x)
        assert in_rows(merged) == in_rows(x)
        assert merged.dtype == x.dtype


@pytest.mark.parametrize(
    ("kind", "num_replicas"),
    some(
        itertools.product([dense, strings, ragged, sparse], range(1, 9)),
        [(dense, 3), (strings, 2), (ragged, 8), (sparse, 3)],
    ),
)
def test_slices_are_even_and_none_is_empty(kind, num_replicas):
    function = through_replicas(num_replicas, kind)
    for n in BATCH_SIZES:
        _, worked_on, kept = function(kind(n))
        worked_on, kept = np.array(worked_on), np.array(kept)
        assert kept.sum() == n
        assert kept.max() - kept.min() <= 1
        assert (worked_on == np.maximum(kept, 1)).all()


@pytest.mark.parametrize("num_replicas", NUM_REPLICAS)
def test_rows_are_dealt_as_the_plan_says(num_replicas):
    plan = Plan(tuple(f"GPU:{i}" for i in range(num_replicas)), "CPU:0")
    for n in (1, 2, 7, 8, 20):
        kept = tuple(int(rows.kept) for rows in share_rows(tf.constant(n), num_replicas))
        assert kept == plan.rows(n)


def test_a_replica_that_stands_by_works_on_row_0():
    x = tf.constant([[7.0], [8.0]])
    slices = split(x, share_rows(count_rows([x]), 4))
    assert [piece.numpy().tolist() for piece in slices] == [[[7.0]], [[8.0]], [[7.0]], [[7.0]]]


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_of_a_replica_that_stands_by_are_dropped(kind):
    assert int(count_rows([drop_standby(kind(3), tf.constant(0))])) == 0
    assert in_rows(drop_standby(kind(3), tf.constant(1))) == in_rows(kind(3))


def test_inputs_with_different_numbers_of_rows_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        count_rows([dense(3), strings(3), ragged(4)])


@pytest.mark.quick
def test_all_kinds_of_inputs_count_their_rows_alike():
    assert int(count_rows([kind(5) for kind in KINDS])) == 5
