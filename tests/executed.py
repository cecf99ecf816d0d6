"""What TensorFlow really ran: ops by device, and what was sent between devices, from the executed graphs."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context  # the only way to the graphs as partitioned and run

DATA_PIPELINE = ("Iterator", "Dataset", "Optional")


class Executed(NamedTuple):
    ops: dict[str, Counter]  # type of op → device → how many
    transfers: Counter  # (from, to) → how many tensors
    transfers_of: Counter  # type → how many tensors
    graphs: list[tf.compat.v1.GraphDef]  # of each function, as optimized, before it was cut into one per device

    def devices_of(self, *types: str) -> Counter:
        """How many ops of these types each device ran; a type stands for all whose names contain it."""
        total: Counter = Counter()
        for kind, devices in self.ops.items():
            if any(kind_of_op in kind for kind_of_op in types):
                total += devices
        return total


def executed(work: Callable[[], object]) -> Executed:
    """Runs `work`, whose functions must be new: graphs are reported when they are first run."""
    context.context().enable_run_metadata()
    try:
        context.context().export_run_metadata()  # drops what functions of earlier tests left to report
        work()
        metadata = context.context().export_run_metadata()
    finally:
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
    return Executed(ops, transfers, transfers_of, graphs)


def _ends(node: tf.compat.v1.NodeDef) -> tuple[str, str]:
    return _short(node.attr["send_device"].s.decode()), _short(node.attr["recv_device"].s.decode())


def _short(device: str) -> str:
    return device.rsplit("device:", 1)[-1]
