"""Tensors by shape, from the executed graphs: what was made, and what crossed from one device to another."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf
from executed import Executed


class Crossing(NamedTuple):
    """A tensor that went from one device to another, once, however many ops read it there."""

    start: str
    end: str
    shape: tuple[int | None, ...] | None  # as far as it is known before the graph runs
    dtype: str
    num_bytes: int | None


def crossings(run: Executed) -> list[Crossing]:
    """Tensors that were sent; scalars too, control flow not."""
    return [crossing for graph in _imported(run) for crossing in _crossings(graph)]


def makers_of(run: Executed, *shape: int) -> Counter:
    """Types of the ops that made a tensor of this shape, and how many there were."""
    outputs = [x for graph in _imported(run) for op in graph.get_operations() for x in op.outputs]
    return Counter(x.op.type for x in outputs if x.dtype != tf.resource and _shape(x) == shape)


def _crossings(graph: tf.Graph) -> list[Crossing]:
    found = {}
    for op in graph.get_operations():
        for x in op.inputs:
            start, end = (place.device.rsplit("device:", 1)[-1] for place in (x.op, op))
            if start != end and x.dtype != tf.resource:
                size = x.dtype.size * math.prod(x.shape) if x.shape.is_fully_defined() else None
                found[x.name, end] = Crossing(start, end, _shape(x), x.dtype.name, size)
    return list(found.values())


def _shape(x: tf.Tensor) -> tuple[int | None, ...] | None:
    return None if x.shape.rank is None else tuple(x.shape)


def _imported(run: Executed) -> Iterator[tf.Graph]:
    """The graphs with their shapes, which TensorFlow infers when it reads a graph."""
    for definition in run.graphs:
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(_readable(definition), name="")
        yield graph


def _readable(definition: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The graph as TensorFlow reads it: it makes names, and an op for constants, that it does not take back."""
    readable = tf.compat.v1.GraphDef()
    readable.CopyFrom(definition)
    for node in readable.node:
        node.name = f"ran/{node.name}"
        node.input[:] = [f"^ran/{name[1:]}" if name.startswith("^") else f"ran/{name}" for name in node.input]
        node.attr.pop("_class", None)  # names of other nodes, to stay beside them
        node.op = "Identity" if node.op == "_EagerConst" else node.op
    return readable
