"""One step of all workers: its number of rows, and which workers have more."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.batches.split_merge import count_rows
from multigpu.engines.tensorflow.cluster.collective import group_sum
from multigpu.engines.tensorflow.cluster.rendezvous import barrier_sum
from multigpu.engines.tensorflow.cluster.together import Step
from multigpu.engines.tensorflow.private_api.variables import backing_variable


class Part(NamedTuple):
    """One worker's part of a global batch, as an element of its dataset.

    Attributes:
        data: the data of a Keras step, with at least one row.
        counts: (), int32, 1 if these rows count, 0 if the worker is idle, with a row that does not count.
        more: (), whether the worker has another part after this one.
    """

    data: Any
    counts: tf.Tensor
    more: tf.Tensor


class StepConsensus:
    """The agreement of all workers in every step: rows of the global batch, and whether any has more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        with tf.init_scope(), tf.device("CPU:0"):
            self._more = tf.Variable(1.0, trainable=False)
            self._counts = tf.Variable(1, trainable=False)

    def of_step(self, part: Part, label: str) -> Step:
        """Sum over the workers: the rows of this step, and which have another step."""
        with tf.device("CPU:0"):
            rows = tf.cast(count_rows(tf.nest.flatten(part.data)[:1]) * part.counts, tf.float32)
            number, size = self._cluster.number, self._cluster.size
            own = tf.stack([rows, tf.cast(part.more, tf.float32)])
            summed = barrier_sum(
                tf.concat([own, rows * tf.one_hot(number, size)], axis=0), lambda x: self.sum(x, label)
            )
            (total, more), each = tf.unstack(summed[:2]), summed[2:]
            self._more.assign(more)
            self._counts.assign(part.counts)
            return Step(True, part.counts, total, rows, tf.reduce_sum(each[:number]))

    def sum(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """Return the sum of a few numbers over the workers."""
        with tf.device("CPU:0"):
            return group_sum(x, self._cluster.size, "steps", label)

    def reset(self) -> None:
        """Prepare for a new training."""
        self._more.assign(1.0)

    def any_has_more(self) -> bool:
        """Return whether there will be another step, according to the last one."""
        return bool(self._more.numpy() > 0)

    def is_idle(self) -> bool:
        """Return whether the rows of this worker did not count in the last step."""
        return bool(self._counts.numpy() == 0)


@contextlib.contextmanager
def metrics_kept(part: Part, metrics: Callable[[], Sequence[keras.Metric]], same: Collection[int]) -> Iterator[None]:
    """Restore the metrics after the step in a `with` block if this worker is idle.

    Args:
        part: the worker's part of the batch.
        metrics: a function that returns the metrics. Some are made in the step.
        same: the ids of variables that have the values of the global batch. They are not restored.
    """
    before = {id(v): tf.identity(v) for metric in metrics() for v in map(backing_variable, metric.variables)}

    def make(next_creator: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        made = next_creator(**arguments)
        before[id(made)] = tf.identity(made)  # its initial value
        return made

    with tf.variable_creator_scope(make):
        yield
    own = (v for metric in metrics() for v in metric.variables if id(v) not in same)
    for variable in {id(v): backing_variable(v) for v in own}.values():
        with tf.device(variable.device):
            variable.assign(tf.where(part.counts > 0, variable, before[id(variable)]))
