"""Guard methods of the parallel model: no strategy or graph around it, clear out-of-memory errors, no tapes left."""

import contextlib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.arguments import by_name
from multigpu.engines.tensorflow.devices.logical import short_name
from multigpu.engines.tensorflow.parallel.distribute_strategy import USED, check_eager, check_no_strategy
from multigpu.engines.tensorflow.replicas.tapes import tapes_released
from multigpu.plan.plan import Plan

BATCH_SIZE = 32  # Keras' default


def guarded(verb: Callable, prepared: Callable = contextlib.nullcontext) -> Any:
    """Return a method of Keras' models, such as `fit`, with errors that explain what to do.

    Args:
        verb: the method.
        prepared: a context that receives the arguments by name, and returns those for Keras.
    """
    in_batches = "batch_size" in inspect.signature(verb).parameters

    @functools.wraps(verb)
    def guarded_verb(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_no_strategy(USED)
        check_eager(USED)
        of_keras = getattr(keras.Model, verb.__name__).__get__(self)  # now: others may have replaced it
        arguments = by_name(of_keras, args, kwargs)
        explained = self._spread.layer_named((tf.errors.InvalidArgumentError,))  # in a traced step
        try:
            with tapes_released(), explained, prepared(arguments) as for_keras:
                return of_keras(**for_keras)
        except OutOfMemory:
            raise  # by an inner method: `fit` evaluates
        except tf.errors.ResourceExhaustedError as error:
            raise out_of_memory_error(error, self.plan, _rows(arguments, in_batches)) from error

    return guarded_verb


def _rows(arguments: dict[str, Any], in_batches: bool) -> int | None:
    """Return the rows of a batch, as far as the arguments of a method tell."""
    data = arguments.get("x")
    if isinstance(data, tf.data.Dataset):
        return _count(next(iter(data.take(1)), None))
    if isinstance(data, keras.utils.PyDataset):
        return _count(data[0])
    if hasattr(data, "__next__"):
        return None
    at_most = arguments.get("batch_size") or BATCH_SIZE if in_batches else None
    rows = _count(data)
    return rows if at_most is None or rows is None else min(rows, at_most)


def _count(batch: Any) -> int | None:
    arrays = [each for each in keras.tree.flatten(batch) if hasattr(each, "shape")]
    return int(arrays[0].shape[0]) if arrays else None


class OutOfMemory(tf.errors.ResourceExhaustedError):
    """TensorFlow's out-of-memory error, with advice in front."""


def out_of_memory_error(error: tf.errors.ResourceExhaustedError, plan: Plan, rows: int | None) -> OutOfMemory:
    """Return the error with advice.

    Args:
        error: TensorFlow's error.
        plan: the plan.
        rows: the rows of the batch, if they are known.
    """
    message = f"{_advice(plan, str(error), rows)}\n\nTensorFlow's error: {error.message}"
    return OutOfMemory(error.node_def, error.op, message)


def _advice(plan: Plan, said: str, rows: int | None) -> str:
    device = _device(said)
    where = device or "a device"
    usable = "The template keeps its weights and can be used."
    if rows is None:
        return (
            "Expected batches that fit into the memory of every device. "
            f"Received: one that does not fit on {where}. Make the batches smaller. {usable}"
        )
    of_replica = plan.rows(rows)[next(iter(plan.slices_on(device or "")), 0)]
    smaller = of_replica // 2 * len(plan.replicas)
    return (
        f"Expected batches that fit into the memory of every device. Received: a batch of {rows} rows, {of_replica} "
        f"per replica, which does not fit on {where}. "
        + (f"Try `batch_size={smaller}`" if smaller else "Try the dtype policy 'mixed_float16', or a smaller model")
        + f"; `multigpu.estimate()` shows what takes how much memory. {usable}"
    )


def _device(said: str) -> str | None:
    """Return the device that TensorFlow names."""
    found = re.search(r"/job:\w+/replica:\d+/task:\d+/device:\w+:\d+", said)
    return short_name(found[0]) if found else None
