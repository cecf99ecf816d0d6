"""Losses as on one device: divided by the counted rows of the global batch, or computed from all of its rows.

A worker's loss is weighted by its rows. That is exact for a mean over rows. A sum over rows must not be averaged, and a
mean over masked or weighted rows must be weighted by these: such a loss is scaled before. A function that returns one
number for a batch may compute anything, so it receives the rows of all workers. So does a metric of a user's class.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.batches.masks_and_logits import with_same_attached
from multigpu.engines.tensorflow.cluster.together import Step
from multigpu.engines.tensorflow.private_api.attached import mask_of
from multigpu.engines.tensorflow.private_api.gradients import with_gradient
from multigpu.private_api.losses import apply_mask

MEANS = ("sum_over_batch_size", "mean")


@dataclass(eq=False)
class LossScaling:
    """Replacements for methods of Keras' losses and metrics, in one step of all workers.

    Attributes:
        step: the step, with the rows of this worker and of all.
        summed: a function that sums a scalar over workers.
        all_rows: a function that gathers the rows of all workers.
        has_rows: a function that tells whether an output has rows, and is not the same on all workers.
        own_classes: the metrics that code of a user updates. They receive all rows, so all workers have the same.
    """

    step: Step
    summed: Callable[[tf.Tensor], tf.Tensor]
    all_rows: Callable[[tf.Tensor], tf.Tensor]
    has_rows: Callable[[Any], bool]
    own_classes: Sequence[keras.Metric]

    def __post_init__(self) -> None:
        self._output: Any = None  # of the last loss
        self._plain_loss = keras.losses.Loss.__call__
        self._plain_mean = keras.metrics.Mean.update_state
        self._plain_function = keras.metrics.MeanMetricWrapper.update_state
        self._depth = 0  # the depth of losses that call losses
        self._of_all = False  # whether a metric with the rows of all workers is updated
        self._asked: list[keras.Metric] = []  # metrics whose functions are being called

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Make the mean of Keras' losses over workers, weighted by rows, equal to one device's, in a `with` block."""
        # the classes are changed because Keras makes the objects; a loss and its divisor cannot be separated publicly
        with (
            replaced(keras.losses.Loss, "__call__", _method(self.of_loss)),
            replaced(keras.metrics.Mean, "update_state", _method(self.of_mean)),
            replaced(keras.metrics.MeanMetricWrapper, "update_state", _method(self.of_function)),
            entered(replaced(metric, "update_state", self._with_all_rows(metric)) for metric in self.own_classes),
        ):
            yield

    def of_loss(self, loss: keras.losses.Loss, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return a loss, scaled so that its mean is of the global batch. A loss of one number receives all rows."""
        self._depth += 1
        if self._depth == 1:
            self._output = keras.tree.flatten(y_pred)[0]
        try:
            with _values_noted(loss) as values:
                value = self._plain_loss(loss, y_true, y_pred, sample_weight)
            if self._depth == 1 and [keras.ops.ndim(each) for each in values] == [0]:
                return self._plain_loss(loss, *_of_all(self.all_rows, y_true, y_pred, sample_weight))
        finally:
            self._depth -= 1
        if self._depth:
            return value
        masks = [mask for mask in map(mask_of, [y_pred, *values]) if mask is not None]
        factor = tf.cast(self._factor(loss, masks, sample_weight), value.dtype)
        if value.shape.rank:  # not reduced: gradients of its values are added, and its mean is not scaled
            return with_gradient(value, lambda upstream: upstream * factor)
        return value * factor

    def of_mean(self, metric: keras.metrics.Mean, values: Any, sample_weight: Any = None) -> Any:
        """Update the mean of one number of a step, such as the loss of one output, weighted by this worker's share."""
        one_number = keras.ops.ndim(values) == 0 and not self._of_all
        if one_number and metric in self._asked:
            return self._asked.remove(metric)
        if one_number and not self._counts_rows(sample_weight):
            weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
            sample_weight = weight * tf.math.divide_no_nan(self.step.rows_here, self.step.rows)
        return self._plain_mean(metric, values, sample_weight)

    def _counts_rows(self, sample_weight: Any) -> bool:
        """Return whether Keras weights a loss by this worker's rows, and not by the length of an output without rows.

        In a graph, the number of rows is a tensor. For the loss of an output it is not known there.
        """
        if sample_weight is None or tf.is_tensor(sample_weight) or not tf.executing_eagerly():
            return tf.is_tensor(sample_weight)
        rows_here: Any = self.step.rows_here
        return sample_weight == int(rows_here) and self.has_rows(self._output)

    def of_function(self, metric: keras.metrics.Mean, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Update a metric that is a function. A function that returns one number receives all rows."""
        if self._of_all:
            return self._plain_function(metric, y_true, y_pred, sample_weight)
        self._asked.append(metric)
        self._plain_function(metric, y_true, y_pred, sample_weight)
        if metric in self._asked:
            return self._asked.remove(metric)
        return self._plain_function(metric, *_of_all(self.all_rows, y_true, y_pred, sample_weight))

    def _with_all_rows(self, metric: keras.Metric) -> Callable[..., Any]:
        update = metric.update_state

        def with_all_rows(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = _of_all(self.all_rows, args, kwargs)
            with replaced(self, "_of_all", True):
                return update(*args, **kwargs)

        return with_all_rows

    def _factor(self, loss: keras.losses.Loss, masks: Sequence[Any], sample_weight: Any) -> tf.Tensor | float:
        step = self.step
        per_row = tf.math.divide_no_nan(step.rows, step.rows_here)
        if loss.reduction in (None, "none", "sum"):
            return per_row
        mask = functools.reduce(tf.logical_and, [tf.cast(mask, tf.bool) for mask in masks]) if masks else None
        weight = None if loss.reduction in MEANS else sample_weight
        if mask is None and weight is None:
            return 1.0
        counted = mask if weight is None else apply_mask(tf.cast(weight, tf.float32), mask, "float32", loss.reduction)
        here = tf.reduce_sum(tf.cast(counted, tf.float32)) * tf.cast(step.counts, tf.float32)
        return tf.math.divide_no_nan(here, self.summed(here)) * per_row


def _method(bound: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that a class binds to its objects. It does not bind a bound method."""
    return lambda *args, **kwargs: bound(*args, **kwargs)


def _of_all(all_rows: Callable[[tf.Tensor], tf.Tensor], *structures: Any) -> list[Any]:
    """Return structures of tensors with the rows of all workers, including attached masks and logits."""

    def of_all(leaf: Any) -> Any:
        return with_same_attached(all_rows, leaf) if tf.is_tensor(leaf) and leaf.shape.rank != 0 else leaf

    return [keras.tree.map_structure(of_all, structure) for structure in structures]


@contextlib.contextmanager
def _values_noted(loss: keras.losses.Loss) -> Iterator[list[Any]]:
    """Record the values of a loss before they are reduced. They may have a mask, such as that of a class to ignore."""
    noted: list[Any] = []
    call = loss.call

    def noting(*args: Any, **kwargs: Any) -> Any:
        noted.append(call(*args, **kwargs))
        return noted[-1]

    with replaced(loss, "call", noting):
        yield noted
