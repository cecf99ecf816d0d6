"""split and merge: rows of a batch → one slice per replica, and back. `merge(split(x, n)) == x`."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

# what occurs in TensorFlow's errors
MERGED = "merge_slices"  # the name of the op
BATCH_AXIS_LOST = "no batch axis in a slice of one row"


class RowRange(NamedTuple):
    """The rows of one replica. A replica without rows runs on a copy of row 0, which is dropped again."""

    begin: tf.Tensor  # (), first row of the slice
    size: tf.Tensor  # (), rows to run, never 0
    kept: tf.Tensor  # (), rows that count, 0 for an idle replica


class Position(NamedTuple):
    """The position of a slice in the global batch: the last inputs of a replica, each (), int32, on the host.

    Attributes:
        kept: the rows of the slice that count, 0 for an idle replica.
        replica: the number of the replica among those of all workers.
        first: the number of the slice's first row in the global batch of all workers.
        total: the rows of the global batch.
    """

    kept: tf.Tensor
    replica: tf.Tensor
    first: tf.Tensor
    total: tf.Tensor

    @classmethod
    def at_end_of(cls, inputs: Sequence[tf.Tensor]) -> "Position":
        """Return the position at the end of a replica's inputs."""
        return cls(*inputs[-NUM_SCALARS:])


NUM_SCALARS = len(Position._fields)


def share_rows(total: tf.Tensor, num_replicas: int) -> list[RowRange]:
    """Distribute `total` rows to the replicas in order. Sizes differ by at most one, and the first ones are larger."""
    share, rest = total // num_replicas, total % num_replicas
    shares = []
    for replica in range(num_replicas):
        kept = share + tf.cast(replica < rest, total.dtype)
        begin = replica * share + tf.minimum(replica, rest)
        idle = tf.equal(kept, 0)
        shares.append(RowRange(tf.where(idle, 0, begin), tf.where(idle, 1, kept), kept))
    return shares


def rows_of_each(total: int | None, num_replicas: int) -> int | None:
    """Return how many of `total` rows each replica has. None if they differ, or if the total is unknown."""
    return total // num_replicas if total and total % num_replicas == 0 else None


def count_rows(tensors: Sequence[tf.Tensor], names: Sequence[str] = ()) -> tf.Tensor:
    """Return the rows of the batch, a scalar int32. TensorFlow raises an error with both numbers if inputs differ."""
    counts = [_num_rows(x) for x in tensors]
    of = [f" in {name}" for name in names] + [""] * len(counts)
    expected = "Expected all inputs of a batch to have the same number of rows. Received different numbers"
    checks = [
        tf.debugging.assert_equal(count, counts[0], message=f"{expected}{of[number]}.")
        for number, count in enumerate(counts)
        if number
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(counts[0])


def split(x: tf.Tensor, shares: list[RowRange]) -> list[tf.Tensor]:
    """Return the slices of `x` (dense, ragged or sparse), one per replica."""
    return [take_rows(x, rows.begin, rows.size) for rows in shares]


def drop_standby(x: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Return a replica's output, or no rows if the replica was idle.

    An output may have several rows per row of input (a reshape to `(-1, units)`), so it is all or nothing.
    """
    return take_rows(x, 0, _num_rows(x) * tf.minimum(kept, 1))  # integers that a GPU's host computes, not the GPU


def with_batch_axis(x: tf.Tensor, kept: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Return an output of a slice, whose number of axes a trace does not tell, or raise an error if a row has no axis.

    `tf.squeeze(x)` removes it from a slice of one row. From a batch of one row, one device removes it, too.

    Args:
        x: the output.
        kept: (), the rows of the slice that count.
        total: (), the rows of the global batch.
    """
    shape = tf.shape(x)
    is_number = tf.cast(tf.equal(tf.size(shape), 0), tf.int32)
    has_axis = (kept > 1) | tf.equal(tf.reduce_sum(shape[:1]), 1) | (tf.equal(total, 1) & tf.equal(is_number, 0))
    with tf.control_dependencies([tf.debugging.Assert(has_axis, [BATCH_AXIS_LOST, shape])]):
        return tf.reshape(x, tf.concat([shape, tf.ones([is_number], tf.int32)], axis=0))  # which can be sliced


def merge(slices: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the batch of these slices, with rows in their old order."""
    if isinstance(slices[0], tf.SparseTensor):
        return _merge_sparse(slices)
    return tf.concat(list(slices), axis=0, name=MERGED)


def _merge_sparse(slices: Sequence[tf.SparseTensor]) -> tf.SparseTensor:
    """Merge as `tf.sparse.concat`, but with gradients. Slices may differ in width, and the widest counts."""
    rows = [x.dense_shape[0] for x in slices]
    width = tf.reduce_max(tf.stack([x.dense_shape[1:] for x in slices]), axis=0)
    moves = [tf.concat([[begin], tf.zeros_like(width)], axis=0) for begin in _begins(rows)]
    return tf.SparseTensor(
        tf.concat([x.indices + move for x, move in zip(slices, moves, strict=True)], axis=0),
        tf.concat([x.values for x in slices], axis=0),
        tf.concat([[tf.add_n(rows)], width], axis=0),
    )


def _begins(rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the first row of each slice in the batch."""
    return tf.unstack(tf.cumsum(tf.stack(rows), exclusive=True), num=len(rows))


def _num_rows(x: tf.Tensor) -> tf.Tensor:
    if isinstance(x, tf.SparseTensor):
        return tf.cast(x.dense_shape[0], tf.int32)
    if isinstance(x, tf.RaggedTensor):
        return tf.cast(x.nrows(), tf.int32)
    return tf.shape(x)[0]


def take_rows(x: tf.Tensor, begin: tf.Tensor | int, size: tf.Tensor | int) -> tf.Tensor:
    """Return `x[begin:begin + size]` with an open number of rows, so that one trace serves every slice."""
    if isinstance(x, tf.SparseTensor):
        return _take_sparse(x, begin, size)
    taken = x[begin : begin + size]
    if isinstance(x, tf.RaggedTensor):
        return taken
    taken.set_shape(tf.TensorShape([None]).concatenate(x.shape[1:]))
    return taken


def _take_sparse(x: tf.SparseTensor, begin: tf.Tensor | int, size: tf.Tensor | int) -> tf.SparseTensor:
    shape = x.dense_shape
    start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(shape[1:])], axis=0)
    count = tf.concat([[tf.cast(size, tf.int64)], shape[1:]], axis=0)
    return tf.sparse.slice(x, start, count)
