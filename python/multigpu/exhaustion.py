"""Out of memory: which device it was, how many rows its replica had, and what batch size to try."""

import re

import tensorflow as tf

from multigpu.devices import short_name
from multigpu.plan import Plan


class OutOfMemory(tf.errors.ResourceExhaustedError):
    """TensorFlow's error, which says first what to do."""


def explained(error: tf.errors.ResourceExhaustedError, plan: Plan, rows: int | None) -> OutOfMemory:
    """The error that says what to do.

    Args:
        error: TensorFlow's.
        plan: where the replicas are.
        rows: of the batch, if they are known.
    """
    message = f"{_advice(plan, str(error), rows)}\n\nTensorFlow said: {error.message}"
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
    of_replica = plan.rows(rows)[plan.devices.index(device)] if device in plan.devices else plan.rows(rows)[0]
    smaller = of_replica // 2 * len(plan.devices)
    return (
        f"Expected batches that fit into the memory of every device. Received: a batch of {rows} rows, {of_replica} "
        f"per replica, which does not fit on {where}. "
        + (f"Try `batch_size={smaller}`" if smaller else "Try the dtype policy 'mixed_float16', or a smaller model")
        + f"; `multigpu.estimate()` tells what takes how much. {usable}"
    )


def _device(said: str) -> str | None:
    """The device that TensorFlow names."""
    found = re.search(r"/job:\w+/replica:\d+/task:\d+/device:\w+:\d+", said)
    return short_name(found[0]) if found else None
