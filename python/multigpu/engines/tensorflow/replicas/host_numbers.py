"""Seeds and counters are computed on the CPU, which is where random ops of a GPU want their seeds to be."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

FEW = 16  # numbers of a tensor, at most


def seeds_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced with ops on a few 64-bit whole numbers on the CPU; all others keep their device, or none.

    Keras casts seeds of 64 bits, which on a GPU would be a kernel, and a copy to the host, for each layer that draws.
    Whole numbers of 32 bits are in the memory of the host anyway.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if tf.executing_eagerly():
            return function(*args)
        with tf.compat.v1.device(lambda op: op.device or ("/device:CPU:0" if _is_of_seeds(op) else "")):
            return function(*args)

    return call


def _is_of_seeds(op: tf.Operation) -> bool:
    tensors = [*op.inputs, *op.outputs]
    whole = all(x.dtype.is_integer and (x.shape.num_elements() or FEW + 1) <= FEW for x in tensors)
    return whole and any(x.dtype in (tf.int64, tf.uint64) for x in tensors)
