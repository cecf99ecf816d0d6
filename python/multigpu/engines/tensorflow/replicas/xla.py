"""Compile replicas with XLA, except those with a loop or a branch, and keep what is compared out of its clusters."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import CHOICES, LOOPS, types_of_ops


def compiled(call: Callable[..., list[tf.Tensor]], *inputs: tf.Tensor) -> list[tf.Tensor]:
    """Call a function of tensors, compiled by XLA, or as it is if it has a loop or a branch.

    Forward and backward are separate programs. For its gradient, a loop keeps a list of tensors, and a branch keeps
    tensors that may not be there. TensorFlow cannot pass either from one program to another.
    """
    program = tf.function(call, autograph=False, jit_compile=True)
    trace = program.get_concrete_function(*inputs)
    in_pieces = types_of_ops(trace.graph.as_graph_def()).intersection((*LOOPS, *CHOICES))
    return (call if in_pieces else program)(*inputs)


def not_clustered() -> contextlib.AbstractContextManager[Any]:
    """Return a scope whose ops are in no cluster of `tf.config.optimizer.set_jit()`: XLA draws other random numbers.

    TensorFlow compiles the clusters for some numbers of rows, and not for others.
    """
    return contextlib.nullcontext() if tf.executing_eagerly() else tf.xla.experimental.jit_scope(compile_ops=False)
