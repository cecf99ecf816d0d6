"""Losses as on one device: divided by what counts in the global batch, or computed of all of its rows.

A worker's loss is weighed by its rows. That is exact for a mean over rows. A sum over rows must not be averaged, and a
mean over what a mask or sample weights leave has to be weighed by that: such a loss is scaled beforehand. Of a function
that gives one number for a batch nobody knows what it is: it is given the rows of all workers.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from multigpu.cluster.reduction import Step
from multigpu.private_api.losses import apply_mask
from multigpu.private_api.masks import mask_of, with_mask
from multigpu.private_api.replaced import replaced

MEANS = ("sum_over_batch_size", "mean")


@contextlib.contextmanager
def joint_divisors(
    step: Step, summed: Callable[[tf.Tensor], tf.Tensor], all_rows: Callable[[tf.Tensor], tf.Tensor]
) -> Iterator[None]:
    """While it lasts, Keras' losses give values whose mean over workers, weighted by rows, is that of one device.

    Args:
        step: tells the rows of this worker, and of all.
        summed: sums a scalar over workers.
        all_rows: gathers the rows of all workers.
    """
    plain, plain_update = keras.losses.Loss.__call__, keras.metrics.Mean.update_state
    plain_wrapper = keras.metrics.MeanMetricWrapper.update_state
    depth = 0
    asked: list[keras.Metric] = []

    def scaled(loss: keras.losses.Loss, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        nonlocal depth
        depth += 1
        try:
            with _ranks_noted(loss) as ranks:
                value = plain(loss, y_true, y_pred, sample_weight)
            if depth == 1 and ranks == [0]:
                return plain(loss, *_of_all(all_rows, y_true, y_pred, sample_weight))
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
        one_number = keras.ops.ndim(values) == 0
        if one_number and metric in asked:
            return asked.remove(metric)
        if one_number and sample_weight is None:
            sample_weight = tf.math.divide_no_nan(step.rows_here, step.rows)
        return plain_update(metric, values, sample_weight)

    def wrapper_updated(metric: keras.metrics.Mean, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """A metric that is a function: what gives one number is given all rows."""
        asked.append(metric)
        plain_wrapper(metric, y_true, y_pred, sample_weight)
        if metric in asked:
            return asked.remove(metric)
        return plain_wrapper(metric, *_of_all(all_rows, y_true, y_pred, sample_weight))

    # those of the classes, because Keras makes the objects; there is no seam between a loss and its divisor
    with (
        replaced(keras.losses.Loss, "__call__", scaled),
        replaced(keras.metrics.Mean, "update_state", updated),
        replaced(keras.metrics.MeanMetricWrapper, "update_state", wrapper_updated),
    ):
        yield


def _of_all(all_rows: Callable[[tf.Tensor], tf.Tensor], *structures: Any) -> list[Any]:
    """Structures of tensors, with the rows of all workers, masks too."""

    def of_all(leaf: Any) -> Any:
        if not tf.is_tensor(leaf) or leaf.shape.rank == 0:
            return leaf
        mask = mask_of(leaf)
        return with_mask(all_rows(leaf), None if mask is None else all_rows(mask))

    return [keras.tree.map_structure(of_all, structure) for structure in structures]


@contextlib.contextmanager
def _ranks_noted(loss: keras.losses.Loss) -> Iterator[list[int]]:
    """Notes how many axes the loss has before it is reduced."""
    ranks: list[int] = []
    call = loss.call

    def noted(*args: Any, **kwargs: Any) -> Any:
        values = call(*args, **kwargs)
        ranks.append(keras.ops.ndim(values))
        return values

    with replaced(loss, "call", noted):
        yield ranks
