"""Losses divided as on one device: by what counts in the joint batch, not by what counts on this worker.

A worker's loss is weighed by its rows. That is exact for a mean over rows. A sum over rows must not be averaged, and a
mean over what a mask or sample weights leave has to be weighed by that. So such a loss is scaled beforehand.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import apply_mask  # what a masked loss divides by; Keras has no public name for it

from multigpu.cluster.joint_step import Step
from multigpu.masks import mask_of

MEANS = ("sum_over_batch_size", "mean")


@contextlib.contextmanager
def joint_divisors(step: Step, summed: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[None]:
    """While it lasts, Keras' losses give values whose mean over workers, weighted by rows, is that of one device.

    Args:
        step: tells the rows of this worker, and of all.
        summed: sums a scalar over workers.
    """
    plain = keras.losses.Loss.__call__
    depth = 0

    def scaled(loss: keras.losses.Loss, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        nonlocal depth
        depth += 1
        try:
            value = plain(loss, y_true, y_pred, sample_weight)
        finally:
            depth -= 1
        return value if depth else value * tf.cast(_factor(loss, y_pred, sample_weight), value.dtype)

    def _factor(loss: keras.losses.Loss, y_pred: Any, sample_weight: Any) -> tf.Tensor | float:
        per_row = tf.math.divide_no_nan(step.rows, step.rows_here)
        if loss.reduction in (None, "none", "sum"):
            return per_row
        mask = mask_of(y_pred) if tf.is_tensor(y_pred) else None
        weight = None if loss.reduction in MEANS else sample_weight
        if mask is None and weight is None:
            return 1.0
        counted = mask if weight is None else apply_mask(tf.cast(weight, tf.float32), mask, "float32", loss.reduction)
        here = tf.reduce_sum(tf.cast(counted, tf.float32)) * tf.cast(step.counts, tf.float32)
        return tf.math.divide_no_nan(here, summed(here)) * per_row

    def updated(metric: keras.metrics.Mean, values: Any, sample_weight: Any = None) -> Any:
        """One number of a step, such as the loss of one output, counts by this worker's share, in all once."""
        if sample_weight is None and keras.ops.ndim(values) == 0:
            sample_weight = tf.math.divide_no_nan(step.rows_here, step.rows)
        return plain_update(metric, values, sample_weight)

    # those of the classes, because Keras makes the objects; there is no seam between a loss and its divisor
    plain_update = keras.metrics.Mean.update_state
    keras.losses.Loss.__call__, keras.metrics.Mean.update_state = scaled, updated
    try:
        yield
    finally:
        keras.losses.Loss.__call__, keras.metrics.Mean.update_state = plain, plain_update
