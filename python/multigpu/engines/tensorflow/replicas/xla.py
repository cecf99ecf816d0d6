"""Compile replicas with XLA, except those with a loop or a branch."""

from collections.abc import Callable, Sequence

import tensorflow as tf

CONTROL_FLOW = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")


def compiled(call: Callable[..., list[tf.Tensor]], inputs: Sequence[tf.Tensor]) -> Callable[..., list[tf.Tensor]]:
    """Return the function, compiled by XLA, or unchanged if it has a loop or a branch.

    Forward and backward are separate programs. For its gradient, a loop keeps a list of tensors, and a branch keeps
    tensors that may not be there. TensorFlow cannot pass either from one program to another.

    Args:
        call: a function of tensors.
        inputs: tensors like those that it will be called with.
    """
    program = tf.function(call, autograph=False, jit_compile=True)
    trace = program.get_concrete_function(*inputs)
    return call if _has_control_flow(trace.graph.as_graph_def()) else program


def _has_control_flow(graph: tf.compat.v1.GraphDef) -> bool:
    inner = (node for function in graph.library.function for node in function.node_def)
    return any(node.op in CONTROL_FLOW for nodes in (graph.node, inner) for node in nodes)
