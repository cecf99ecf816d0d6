"""The barrier where all workers meet, and a record, readable by the others, of how long one has been absent.

All workers meet in the first sum of a step and in each message: none leaves before all have come. So a worker that
waits there for long waits for an absent one. Later in a step, it waits for one that has failed if that one is in no
step any more. TensorFlow knows whether a worker answers, but not what it does. So each worker keeps this in named
variables, which the others read on the port where TensorFlow listens. TensorFlow itself answers, even while Python or R
is busy. (Its coordination service could also keep them. But with that service, the first op of a process, on any line,
waits until all others have started, and fails if one does not start.)
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


@functools.cache
def record() -> tuple[tf.Tensor, tf.Tensor]:
    """Make the record of this worker's state: TensorFlow writes it during a step."""
    with tf.init_scope(), tf.device("CPU:0"):
        meeting, within = handles_by_name()
        _write(meeting, _since_now(waits=0.0))
        _write(within, tf.zeros([], tf.float64))
        return meeting, within


def handles_by_name() -> tuple[tf.Tensor, tf.Tensor]:
    """Return handles of two variables, by names that are the same on all workers.

    One contains whether the worker waits for the others (1 or 0), and since when, in seconds since 1970. The other
    contains when its step began, or 0 between steps.
    """
    make = functools.partial(tf.raw_ops.VarHandleOp, dtype=tf.float64)  # the names of a `tf.Variable` are private
    return make(shape=[2], shared_name="multigpu_meeting"), make(shape=[], shared_name="multigpu_within_step")


def _write(handle: tf.Tensor, value: tf.Tensor) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _since_now(waits: float) -> tf.Tensor:
    return tf.stack([tf.constant(waits, tf.float64), tf.timestamp()])


def state_of(handles: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Return (3,): whether a worker waits, for how long it has or has not, and for how long it has made a step, or 0.

    If a worker has no record, TensorFlow raises a `tf.errors.FailedPreconditionError`.
    """
    meeting, within = (tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float64) for handle in handles)
    waits, since = tf.unstack(tf.ensure_shape(meeting, [2]))
    now = tf.timestamp()
    return tf.stack([waits, tf.maximum(now - since, 0.0), tf.where(within > 0, now - within, 0.0)])


def barrier_sum(x: tf.Tensor, summed: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return `summed(x)`, a sum in which all workers meet. Until it ends, this worker is recorded as waiting."""
    meeting, _ = record()
    with tf.device("CPU:0"):
        with tf.control_dependencies([x]):
            came = _write(meeting, _since_now(waits=1.0))
        with tf.control_dependencies([came] if came is not None else []):  # None: done
            met = summed(tf.identity(x))
        with tf.control_dependencies([met]):
            _write(meeting, _since_now(waits=0.0))
    return met


@contextlib.contextmanager
def within_step() -> Iterator[None]:
    """Record, inside a `with` block, that this worker makes a step, which begins with its data."""
    meeting, within = record()
    _write(within, tf.timestamp())
    try:
        yield
    finally:
        _write(meeting, _since_now(waits=0.0))  # a step that failed waits no more
        _write(within, tf.zeros([], tf.float64))


def seconds_waiting() -> float:
    """Return how long this worker has been waiting for the others, or 0 if it does not wait."""
    waits, seconds, _ = state_of(record()).numpy()
    return waits * seconds


def seconds_since_barrier() -> float:
    """Return how long ago this worker left the barrier of the step that it makes, or 0 if it has not left one."""
    waits, seconds, step = state_of(record()).numpy()
    return seconds if not waits and step > seconds else 0.0
