"""Gather the rows of all workers, padded with zeros to equal numbers."""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from multigpu.cluster.config import Cluster

Summed: TypeAlias = Callable[[tf.Tensor, str], tf.Tensor]  # a tensor, summed over workers under a label


def all_rows(rows: tf.IndexedSlices, cluster: Cluster, summed: Summed) -> list[tf.IndexedSlices]:
    """Return the rows of each worker.

    TensorFlow gathers only equal shapes. So each worker writes its rows into its own place in a tensor of zeros, as
    long as the longest, and these tensors are summed. Rows of zeros point to row 0, to which they add nothing.

    Args:
        rows: this worker's.
        cluster: the workers.
        summed: sums over workers.
    """
    count = tf.shape(rows.indices)[0]
    longest = tf.reduce_max(_counts(count, cluster, summed))
    all_values = _stacked(rows.values, longest, cluster, summed, "values")
    all_indices = _stacked(tf.cast(rows.indices, tf.int64), longest, cluster, summed, "indices")
    return [
        tf.IndexedSlices(all_values[number], tf.cast(all_indices[number], rows.indices.dtype), rows.dense_shape)
        for number in range(cluster.size)
    ]


def gather(x: tf.Tensor, cluster: Cluster, summed: Summed) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the rows of all workers, in their order, and how many come before the rows of this one.

    Args:
        x: this worker's rows, any number of them. The rest of the shape is the same on all workers.
        cluster: the workers.
        summed: sums over workers.
    """
    counts = _counts(tf.shape(x)[0], cluster, summed)
    wide = x if x.dtype.is_floating else tf.cast(x, tf.int64)  # a type that collective ops accept
    stacked = _stacked(wide, tf.reduce_max(counts), cluster, summed, f"rows {x.dtype.name}")
    rows = tf.concat([stacked[number, : counts[number]] for number in range(cluster.size)], axis=0)
    return tf.cast(rows, x.dtype), tf.reduce_sum(counts[: cluster.number])


def _counts(count: tf.Tensor, cluster: Cluster, summed: Summed) -> tf.Tensor:
    """Return how many rows each worker has."""
    return summed(in_place(count[None], cluster)[:, 0], "counts")


def _stacked(x: tf.Tensor, longest: tf.Tensor, cluster: Cluster, summed: Summed, label: str) -> tf.Tensor:
    """Return the rows of all workers, padded with zeros: (workers, longest, ...)."""
    filled = tf.pad(x, [[0, longest - tf.shape(x)[0]]] + [[0, 0]] * (x.shape.rank - 1))
    return summed(in_place(filled, cluster), f"{label} {x.shape[1:]}")


def in_place(x: tf.Tensor, cluster: Cluster) -> tf.Tensor:
    """Return zeros for every worker, with `x` in the place of this one: (workers, ...)."""
    before, after = cluster.number, cluster.size - 1 - cluster.number
    return tf.pad(x[None], [[before, after]] + [[0, 0]] * x.shape.rank)
