"""Compute seeds and counters on the CPU, where the random ops of a GPU need their seeds."""

import contextlib

import tensorflow as tf

FEW = 16  # maximum number of elements of a tensor


def seeds_on_host() -> contextlib.AbstractContextManager[None]:
    """Trace ops on a few 64-bit integers on the CPU, inside a `with` block. Other ops keep their device.

    Keras casts seeds of 64 bits. On a GPU this would need a kernel and a copy to the host for each random layer. 32-bit
    integers are in the host's memory anyway.
    """
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    return tf.compat.v1.device(lambda op: op.device or ("/device:CPU:0" if _is_of_seeds(op) else ""))


def _is_of_seeds(op: tf.Operation) -> bool:
    tensors = [*op.inputs, *op.outputs]
    whole = all(x.dtype.is_integer and (x.shape.num_elements() or FEW + 1) <= FEW for x in tensors)
    return whole and any(x.dtype in (tf.int64, tf.uint64) for x in tensors)
