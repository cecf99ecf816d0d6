"""Sums over rows, told from means: what layers add to the loss, or keep, for twice as many equal rows.

One number per replica does not tell whether it is a mean over rows or a sum over them. But for a batch whose rows are
all alike, twice as many of them double a sum and leave a mean.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from multigpu.cluster.workers import Workers
from multigpu.state import weighted_mean

FEW_ROWS = 16  # enough for the noise of random layers to average out


def grow_with_rows(run: Callable[[int], Sequence[tf.Tensor]]) -> list[bool | None]:
    """Whether each number that `run` gives for so many equal rows grows with them; None where that cannot be told."""
    with tf.init_scope():  # also while a step is traced
        few, twice = ([float(tf.reduce_sum(tf.abs(x))) for x in run(rows)] for rows in (FEW_ROWS, 2 * FEW_ROWS))
    return [b > 1.5 * a if a > 0 and math.isfinite(b) else None for a, b in zip(few, twice, strict=True)]


def equal_rows(like: tf.Tensor, rows: int) -> tf.Tensor:
    """A made-up batch of so many equal rows, in the shape and type of a slice."""
    shape = [8 if size is None else size for size in like.shape[1:]]
    if like.dtype.is_floating:
        row = tf.cast(np.random.default_rng(0).normal(size=shape), like.dtype)
    elif like.dtype == tf.string:
        row = tf.fill(shape, "")
    else:
        row = tf.ones(shape, like.dtype) if like.dtype.is_bool else tf.zeros(shape, like.dtype)
    return tf.tile(row[None], [rows] + [1] * len(shape))


def merge_losses(
    per_replica: Sequence[Sequence[tf.Tensor]],
    kept: Sequence[tf.Tensor],
    sums: Sequence[bool],
    workers: Workers | None = None,
) -> list[tf.Tensor]:
    """Each added loss of the whole batch: sums added up, means averaged by rows. Who stands by does not count."""
    merged = []
    for values, is_sum in zip(zip(*per_replica, strict=True), sums, strict=True):
        total = weighted_mean(values, kept)
        if is_sum:
            counts = [tf.minimum(rows, 1) for rows in kept]
            total = weighted_mean(values, counts) * tf.cast(tf.add_n(counts), total.dtype)
            total = workers.part_of_sum(total) if workers else total
        merged.append(total)
    return merged
