"""Compile replicas with XLA, except those with a loop or a branch."""

from collections.abc import Callable

import tensorflow as tf

from multigpu.engines.tensorflow.replicas.traced import Traced

CONTROL_FLOW = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")


def compiled(call: Callable[..., tuple[list[tf.Tensor], Traced]], *inputs: tf.Tensor) -> tuple[list[tf.Tensor], Traced]:
    """Call a function of tensors, compiled by XLA, or as it is if it has a loop or a branch.

    Forward and backward are separate programs. For its gradient, a loop keeps a list of tensors, and a branch keeps
    tensors that may not be there. TensorFlow cannot pass either from one program to another.
    """
    program = tf.function(call, autograph=False, jit_compile=True)
    trace = program.get_concrete_function(*inputs)
    return (call if _has_control_flow(trace.graph.as_graph_def()) else program)(*inputs)


def _has_control_flow(graph: tf.compat.v1.GraphDef) -> bool:
    inner = (node for function in graph.library.function for node in function.node_def)
    return any(node.op in CONTROL_FLOW for nodes in (graph.node, inner) for node in nodes)
