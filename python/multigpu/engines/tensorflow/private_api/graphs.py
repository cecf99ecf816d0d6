"""Graphs that are being traced."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

CHOICES = ("If", "StatelessIf", "Case", "StatelessCase")  # ops whose first input decides


def within_xla() -> bool:
    """Whether XLA will compile the function that is being traced, for which TensorFlow sets a context of its own."""
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def around_xla() -> contextlib.AbstractContextManager[Any]:
    """The graph around a function that XLA will compile, which cannot read what is on another device."""
    if not within_xla():
        return contextlib.nullcontext()
    graph = tf.compat.v1.get_default_graph()
    while control_flow_util.GraphOrParentsInXlaContext(graph):
        graph = graph.outer_graph
    return graph.as_default()


@contextlib.contextmanager
def side_by_side() -> Iterator[None]:
    """Let calls in this scope run beside those in other such scopes, though they may print, check or draw numbers.

    `tf.function` has functions with side effects wait for each other. Where each of them waits in its midst for the
    others to come there, as replicas with shared statistics do, none would ever be done. A function that takes a
    variable still comes before or after those that change it. Not for calls on one device: TensorFlow takes two that
    print the same for one. It has no public way to its manager of the order.
    """
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    known = len(graph.get_operations())
    yield
    order = graph.experimental_acd_manager
    for op in graph.get_operations()[known:] if order is not None else []:
        if op.type == "StatefulPartitionedCall" and not _takes_variables(op):
            order.run_independently(op)


def _takes_variables(op: tf.Operation) -> bool:
    """Return whether a call takes a resource, but for tables in which it looks something up."""
    taken = [x for x in body_of(op, "f").inputs if x.dtype == tf.resource]
    return any(reader.type != "LookupTableFindV2" for x in taken for reader in x.consumers())


def body_of(op: tf.Operation, attribute: str) -> tf.Graph:
    """The graph of a function that an op calls. A public way leads only to its definition, without shapes.

    Args:
        op: of a graph that is being traced.
        attribute: under which the op has the function.
    """
    return op.graph._get_function(op.get_attr(attribute).name).graph


def bodies_of(op: tf.Operation) -> Iterator[tuple[tf.Graph, int]]:
    """The graphs of all functions that an op may call, and the number of its first input that they take."""
    for name in op.op_def.attr if op.op_def else ():
        value = op.get_attr(name.name) if name.type in ("func", "list(func)") else []
        for function in value if isinstance(value, list) else [value]:
            if function.name:
                yield op.graph._get_function(function.name).graph, op.type in CHOICES


def ask_in_each_call(function: Any, givers: Mapping[int, Callable[[], tf.Tensor]]) -> None:
    """Has calls of a function ask for some of the tensors that it has captured, which are given by their ids.

    A tape around a call then follows what is given. TensorFlow has functions that do so, but no public way to make one.
    """
    graph = function.graph
    captured = [givers.get(id(tensor), tensor) for tensor in graph.external_captures]
    function.set_external_captures([*captured, *graph.deferred_external_captures])


def outermost(graph: tf.Graph) -> tf.Graph:
    """The graph of the whole function, of that of a branch, a loop or a function in it; else the graph itself."""
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph
