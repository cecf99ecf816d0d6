"""Properties of graphs that are being traced."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

CHOICES = ("If", "StatelessIf", "Case", "StatelessCase")  # ops whose first input decides
LOOPS = ("While", "StatelessWhile")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # of functions


def within_xla() -> bool:
    """Return whether XLA will compile the function that is being traced: TensorFlow sets a special context."""
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def around_xla() -> contextlib.AbstractContextManager[Any]:
    """Return the graph around a function that XLA will compile, which cannot read values on another device."""
    if not within_xla():
        return contextlib.nullcontext()
    graph = tf.compat.v1.get_default_graph()
    while control_flow_util.GraphOrParentsInXlaContext(graph):
        graph = graph.outer_graph
    return graph.as_default()


@contextlib.contextmanager
def side_by_side() -> Iterator[None]:
    """Let calls in this scope run beside calls in other such scopes, though they print, check or draw numbers.

    `tf.function` makes functions with side effects wait for each other. If each of them waits in the middle for the
    others, as replicas with shared statistics do, none would ever end. A function that uses a variable still runs
    before or after those that change it. Do not use this for calls on one device: TensorFlow merges two that print the
    same. It has no public access to its manager of the order.
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
    """Return whether a call uses a resource, except tables from which it only reads."""
    taken = [x for x in body_of(op, "f").inputs if x.dtype == tf.resource]
    return any(reader.type != "LookupTableFindV2" for x in taken for reader in x.consumers())


def types_of_ops(definition: tf.compat.v1.GraphDef) -> set[str]:
    """Return the types of the ops of a graph, and of all functions that it calls."""
    inner = (node for function in definition.library.function for node in function.node_def)
    return {node.op for node in (*definition.node, *inner)}


def ops_that_stop_gradients(graph: tf.Graph) -> list[tf.Operation]:
    """Return the ops of a graph that stop a gradient, or that call a function with such an op.

    Those of `tf.nn.moments` do not count: they stop one that is zero.
    """
    definition = graph.as_graph_def()
    bodies = {each.signature.name: each.node_def for each in definition.library.function}

    @functools.cache
    def any_stops(function: str) -> bool:
        return any(map(stops, bodies.get(function, ())))

    def stops(node: tf.compat.v1.NodeDef) -> bool:
        if node.op == "StopGradient":
            return not node.name.endswith("moments/StopGradient")
        called = [each for value in node.attr.values() for each in (value.func, *value.list.func)]
        return any(any_stops(each.name) for each in called)

    return [graph.get_operation_by_name(node.name) for node in definition.node if stops(node)]


def body_of(op: tf.Operation, attribute: str) -> tf.Graph:
    """Return the graph of a function that an op calls. The public way gives only a definition without shapes.

    Args:
        op: an op of a graph that is being traced.
        attribute: the op's attribute for the function.
    """
    return op.graph._get_function(op.get_attr(attribute).name).graph


def bodies_of(op: tf.Operation) -> Iterator[tuple[tf.Graph, int]]:
    """Return the graphs of all functions that an op may call, and the number of the first input that they receive."""
    for name in op.op_def.attr if op.op_def else ():
        value = op.get_attr(name.name) if name.type in ("func", "list(func)") else []
        for function in value if isinstance(value, list) else [value]:
            if function.name:
                yield op.graph._get_function(function.name).graph, op.type in CHOICES


def ask_in_each_call(function: Any, givers: Mapping[int, Callable[[], tf.Tensor]]) -> None:
    """Make calls of a function look up some of its captured tensors, given by their ids, in each call.

    A tape around a call then follows the tensors that are looked up. TensorFlow has functions that do this, but no
    public way to make one.
    """
    graph = function.graph
    captured = [givers.get(id(tensor), tensor) for tensor in graph.external_captures]
    function.set_external_captures([*captured, *graph.deferred_external_captures])


def outermost(graph: tf.Graph) -> tf.Graph:
    """Return the graph of the whole function around a branch, a loop or an inner function, or the graph itself."""
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph
