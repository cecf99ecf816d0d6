"""What TensorFlow really ran: ops by device, and what was sent between devices, from the executed graphs."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context  # the only way to the graphs as partitioned and run

DATA_PIPELINE = ("Iterator", "Dataset", "Optional")


class Transfer(NamedTuple):
    """One tensor that went from one device to another; what depends on the batch has an open shape."""

    start: str
    end: str
    shape: tuple[int, ...] | None
    num_bytes: int | None


class Executed(NamedTuple):
    ops: dict[str, Counter]  # type of op → device → how many
    transfers: Counter  # (from, to) → how many tensors
    transfers_of: Counter  # type → how many tensors
    graphs: list[tf.compat.v1.GraphDef]  # of each function, as optimized, before it was cut into one per device
    functions: list[list[tf.compat.v1.GraphDef]]  # each function's graph, in parts, one per device

    def devices_of(self, *types: str) -> Counter:
        """How many ops of these types each device ran; a type stands for all whose names contain it."""
        total: Counter = Counter()
        for kind, devices in self.ops.items():
            if any(kind_of_op in kind for kind_of_op in types):
                total += devices
        return total

    def sent(self) -> list[Transfer]:
        """Every tensor that went from device to device in the largest function, the step, with its bytes.

        Those of weights do not depend on the batch, if its size is open: `fit` on a dataset leaves it so.

        TensorFlow 2.21 gives a wrong shape to the bias gradient of oneDNN's fused convolution: where convolutions have
        biases, set `TF_ENABLE_ONEDNN_OPTS=0`.
        """
        return _sent(max(self.functions, key=lambda parts: sum(len(graph.node) for graph in parts)))


def executed(work: Callable[[], object]) -> Executed:
    """Runs `work`, whose functions must be new: graphs are reported when they are first run."""
    context.context().enable_run_metadata()
    try:
        context.context().export_run_metadata()  # drops what functions of earlier tests left to report
        work()
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_run_metadata()
    functions = [list(function.partition_graphs) for function in metadata.function_graphs]
    ops: dict[str, Counter] = {}
    transfers: Counter = Counter()
    transfers_of: Counter = Counter()
    for node in (node for parts in functions for graph in parts for node in graph.node):
        ops.setdefault(node.op, Counter())[_short(node.device)] += 1
        if node.op in ("_Send", "_HostSend"):
            transfers[_ends(node)] += 1
            transfers_of[tf.as_dtype(node.attr["T"].type)] += 1
    graphs = [function.post_optimization_graph for function in metadata.function_graphs]
    return Executed(ops, transfers, transfers_of, graphs, functions)


def _sent(parts: Iterable[tf.compat.v1.GraphDef]) -> list[Transfer]:
    """The parts put together again, where a tensor's shape follows from the shapes of the variables."""
    nodes = [node for graph in parts for node in graph.node]
    sends = [node for node in nodes if node.op in ("_Send", "_HostSend")]
    sources = {_meeting(node): node.input[0] for node in sends}
    whole = tf.compat.v1.GraphDef()
    for node in nodes:
        if node.op not in ("_Send", "_HostSend", "_Retval"):
            whole.node.append(_as_in_one_graph(node, sources))
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(whole, name="")
    return [_transfer(node, graph.as_graph_element(_output(node.input[0]))) for node in sends]


def _transfer(send: tf.compat.v1.NodeDef, tensor: tf.Tensor) -> Transfer:
    shape = tuple(tensor.shape) if tensor.shape.is_fully_defined() else None
    return Transfer(*_ends(send), shape, None if shape is None else math.prod(shape) * tensor.dtype.size)


def _as_in_one_graph(node: tf.compat.v1.NodeDef, sources: dict[tuple, str]) -> tf.compat.v1.NodeDef:
    """The node without device and order, which do not matter to shapes; what arrives is what was sent."""
    copy = tf.compat.v1.NodeDef(name=node.name, op=node.op)
    if node.op in ("_Recv", "_HostRecv"):
        copy.op = "Identity"
        copy.input.append(sources[_meeting(node)])
        copy.attr["T"].CopyFrom(node.attr["tensor_type"])
    elif node.op == "_Arg" and node.attr["_handle_shapes"].list.shape:  # a variable
        copy.op = "VarHandleOp"
        copy.attr["dtype"].type = node.attr["_handle_dtypes"].list.type[0]
        copy.attr["shape"].shape.CopyFrom(node.attr["_handle_shapes"].list.shape[0])
    elif node.op == "_Arg":
        copy.op = "Placeholder"
        copy.attr["dtype"].CopyFrom(node.attr["T"])
    else:
        copy.input.extend(name for name in node.input if not name.startswith("^"))
        for name, value in node.attr.items():
            if name != "_class":
                copy.attr[name].CopyFrom(value)
    return copy


def _meeting(node: tf.compat.v1.NodeDef) -> tuple:
    """By what a `_Send` and its `_Recv` find each other."""
    return node.attr["tensor_name"].s, *_ends(node)


def _ends(node: tf.compat.v1.NodeDef) -> tuple[str, str]:
    return _short(node.attr["send_device"].s.decode()), _short(node.attr["recv_device"].s.decode())


def _output(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _short(device: str) -> str:
    return device.rsplit("device:", 1)[-1]
