"""What TensorFlow really ran: ops by device, and what was sent between devices, from the executed graphs."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context  # the only way to the graphs as partitioned and run


class Executed(NamedTuple):
    """The graphs of one piece of work, and what there is to count in them."""

    ops: dict[str, Counter]  # type of op → device → how many
    transfers: Counter  # (from, to) → how many tensors
    transfers_of: Counter  # type → how many tensors
    graphs: list[tf.compat.v1.GraphDef]  # of each function, as optimized, before it was cut into one per device
    parts: list[tf.compat.v1.GraphDef]  # of each function and device

    def devices_of(self, *types: str) -> Counter:
        """How many ops of these types each device ran; a type stands for all whose names contain it."""
        total: Counter = Counter()
        for kind, devices in self.ops.items():
            if any(kind_of_op in kind for kind_of_op in types):
                total += devices
        return total


def executed(work: Callable[[], object]) -> Executed:
    """Runs `work`, whose functions must be new: graphs are reported when they are first run. No batch is checked."""
    context.context().enable_run_metadata()
    try:
        os.environ["MULTIGPU_CHECK"] = "0"
        context.context().export_run_metadata()  # drops what functions of earlier tests left to report
        work()
        metadata = context.context().export_run_metadata()
    finally:
        del os.environ["MULTIGPU_CHECK"]
        context.context().disable_run_metadata()
    parts = [graph for function in metadata.function_graphs for graph in function.partition_graphs]
    ops: dict[str, Counter] = {}
    transfers: Counter = Counter()
    transfers_of: Counter = Counter()
    for node in (node for graph in parts for node in graph.node):
        ops.setdefault(node.op, Counter())[_short(node.device)] += 1
        if node.op in ("_Send", "_HostSend"):
            transfers[_ends(node)] += 1
            transfers_of[tf.as_dtype(node.attr["T"].type)] += 1
    graphs = [function.post_optimization_graph for function in metadata.function_graphs]
    return Executed(ops, transfers, transfers_of, graphs, parts)


def _ends(node: tf.compat.v1.NodeDef) -> tuple[str, str]:
    return _short(node.attr["send_device"].s.decode()), _short(node.attr["recv_device"].s.decode())


def _short(device: str) -> str:
    return device.rsplit("device:", 1)[-1]


# Tensors by shape -----------------------------------------------------------------------------------------------------


class Transfer(NamedTuple):
    """A tensor that was sent from one device to another, once, however many ops read it there."""

    start: str
    end: str
    shape: tuple[int | None, ...] | None  # as far as it is known before the graph runs
    dtype: str
    num_bytes: int | None


def sent_tensors(run: Executed) -> list[Transfer]:
    """Tensors that were sent from one device to another; scalars too, control flow not."""
    return [transfer for graph in _imported(run) for transfer in _transfers(graph)]


def makers_of(run: Executed, *shape: int) -> Counter:
    """Types of the ops that made a tensor of this shape, and how many there were."""
    outputs = [x for graph in _imported(run) for op in graph.get_operations() for x in op.outputs]
    return Counter(x.op.type for x in outputs if x.dtype != tf.resource and _shape(x) == shape)


def _transfers(graph: tf.Graph) -> list[Transfer]:
    found = {}
    for op in graph.get_operations():
        for x in op.inputs:
            start, end = (_short(place.device) for place in (x.op, op))
            if start != end and x.dtype != tf.resource:
                size = x.dtype.size * math.prod(x.shape) if x.shape.is_fully_defined() else None
                found[x.name, end] = Transfer(start, end, _shape(x), x.dtype.name, size)
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
