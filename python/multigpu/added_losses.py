"""Losses that layers add, from one per replica to the one of the whole batch: a mean over rows, or a sum over rows.

A scalar does not tell which it is, but a batch of equal rows does: twice as many of them double a sum, not a mean.
"""

import math
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from multigpu.place_locate import read
from multigpu.state import weighted_mean

FEW_ROWS = 16  # enough for the noise of random layers to average out


def sums_over_rows(
    function: Callable[..., Sequence[tf.Tensor]],
    variables: Sequence[keras.Variable],
    slices: Sequence[tf.Tensor],
    losses: slice,
) -> list[bool]:
    """Whether each added loss grows with the number of rows, found by running a replica on rows that are all alike.

    Args:
        function: the replica: takes values of the variables, a slice, its rows and its number.
        variables: what it reads.
        slices: tensors shaped like those of the slice, dense.
        losses: where the added losses are among the results.
    """

    def run(rows: int) -> list[float]:
        with tf.init_scope():
            alike = [_equal_rows(x, rows) for x in slices]
            results = function(*map(read, variables), *alike, tf.constant(rows), tf.constant(0))
            return [float(loss) for loss in results[losses]]

    try:
        few, twice = run(FEW_ROWS), run(2 * FEW_ROWS)
    except tf.errors.InvalidArgumentError:  # made-up rows are not for every model; then the documented mean holds
        return [False] * len(range(*losses.indices(losses.stop)))
    return [math.isfinite(b) and abs(b) > 1.5 * abs(a) for a, b in zip(few, twice, strict=True)]


def merge_losses(
    per_replica: Sequence[Sequence[tf.Tensor]], kept: Sequence[tf.Tensor], sums: Sequence[bool]
) -> list[tf.Tensor]:
    """Each added loss of the whole batch: sums added up, means averaged by rows. Who stands by does not count."""
    merged = []
    for values, is_sum in zip(zip(*per_replica, strict=True), sums, strict=True):
        total = weighted_mean(values, kept)
        if is_sum:
            counts = [tf.minimum(rows, 1) for rows in kept]
            total = weighted_mean(values, counts) * tf.cast(tf.add_n(counts), total.dtype)
        merged.append(total)
    return merged


def _equal_rows(x: tf.Tensor, rows: int) -> tf.Tensor:
    shape = [8 if size is None else size for size in x.shape[1:]]
    if x.dtype.is_floating:
        row = tf.cast(np.random.default_rng(0).normal(size=shape), x.dtype)
    elif x.dtype == tf.string:
        row = tf.fill(shape, "")
    else:
        row = tf.ones(shape, x.dtype) if x.dtype.is_bool else tf.zeros(shape, x.dtype)
    return tf.tile(row[None], [rows] + [1] * len(shape))
