"""Rows of a table's gradient from all workers: as many from each as it has, which only rows of zeros make equal."""

from collections.abc import Callable

import tensorflow as tf

from multigpu.cluster.description import Cluster


def all_rows(
    rows: tf.IndexedSlices, cluster: Cluster, summed: Callable[[tf.Tensor, str], tf.Tensor]
) -> tf.IndexedSlices:
    """The rows of all workers, in their order.

    TensorFlow gathers equal shapes alone. So each worker's rows are written into a place of their own in a tensor of
    zeros, as long as the longest, and these tensors are summed. Rows of zeros point to row 0, where they add nothing.

    Args:
        rows: this worker's.
        cluster: the workers.
        summed: sums over workers what is given, under a label.
    """
    count = tf.shape(rows.indices)[0]
    counts = summed(_in_place(count[None], cluster)[:, 0], "counts")
    longest = tf.reduce_max(counts)
    pad = longest - count
    values = tf.pad(rows.values, [[0, pad]] + [[0, 0]] * (rows.values.shape.rank - 1))
    indices = tf.pad(tf.cast(rows.indices, tf.int64), [[0, pad]])
    all_values = summed(_in_place(values, cluster), f"values {rows.values.shape[1:]}")
    all_indices = summed(_in_place(indices, cluster), "indices")
    return tf.IndexedSlices(
        tf.reshape(all_values, tf.concat([[-1], tf.shape(rows.values)[1:]], axis=0)),
        tf.cast(tf.reshape(all_indices, [-1]), rows.indices.dtype),
        rows.dense_shape,
    )


def _in_place(x: tf.Tensor, cluster: Cluster) -> tf.Tensor:
    """Zeros for every worker, with `x` in the place of this one: (workers, ...)."""
    before, after = cluster.number, cluster.size - 1 - cluster.number
    return tf.pad(x[None], [[before, after]] + [[0, 0]] * x.shape.rank)
