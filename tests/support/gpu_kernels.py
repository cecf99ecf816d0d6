"""What a GPU could run, of graphs that ran on CPU devices: TensorFlow lists its GPU kernels on any machine."""

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry  # the only ways to kernels, and to names of arguments

FROM_ELSEWHERE = ("_Arg", "_DeviceArg", "_Recv", "_HostRecv")  # TensorFlow puts these where the reader wants them


class Edge(NamedTuple):
    """A tensor from one op to another, on one device."""

    source: Any
    target: Any
    argument: str  # of the target


def nodes_of(graph: Any, devices: list[str]) -> list[Any]:
    """Those on some devices; an op that only the CPU has in its place is taken for the one that it replaced."""
    found = [node for node in graph.node if node.device.rsplit("device:", 1)[-1] in devices]
    for node in found:
        node.op = re.sub(r"^_Mkl(Native)?(Fused)?", lambda match: "_Fused" if match[2] else "", node.op)
    return found


def gpu_kernel(node: Any) -> Any | None:
    """The kernel that a GPU would take for the types of a node."""
    for kernel in _kernels(node.op):
        on_gpu = kernel.device_type in ("GPU", "DEFAULT")
        if on_gpu and all(set(_types(node, c.name)) <= set(c.allowed_values.list.type) for c in kernel.constraint):
            return kernel
    return None


def edges(nodes: list[Any]) -> Iterator[Edge]:
    """Between nodes, without those that only say what comes first."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        names = _arguments(node, "input_arg")
        for position, source in enumerate(name for name in node.input if not name.startswith("^")):
            name, _, _ = source.partition(":")
            if name in by_name and position < len(names):
                yield Edge(by_name[name], node, names[position])


def waits_for_host(edge: Edge) -> bool:
    """Whether a GPU computes what the host wants: it would be copied, and the host would wait."""
    source, target = gpu_kernel(edge.source), gpu_kernel(edge.target)
    if edge.source.op in FROM_ELSEWHERE or source is None or target is None:
        return False
    on_host = set(_arguments(edge.source, "output_arg")) <= set(source.host_memory_arg)
    return edge.argument in target.host_memory_arg and not on_host


def shown(node: Any) -> str:
    """A node in a message of a test."""
    types = sorted({tf.as_dtype(t).name for key in ("T", "dtype", "SrcT", "DstT") for t in _types(node, key) if t})
    return f"{node.op}({', '.join(types)}) {node.name}"


@functools.cache
def _kernels(op: str) -> list[Any]:
    """Those that TensorFlow has for an op, each read once."""
    return list(kernels.get_registered_kernels_for_op(op).kernel)


@functools.cache
def _definition(op: str) -> Any:
    return op_def_registry.get(op)


def _types(node: Any, attribute: str) -> list[int]:
    value = node.attr[attribute]
    return list(value.list.type) or [value.type]


def _arguments(node: Any, kind: str) -> list[str]:
    """The name of the argument for each input, or output: one that is a list has several."""
    definition = _definition(node.op)
    names: list[str] = []
    for argument in getattr(definition, kind) if definition else ():
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        else:
            count = len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1
        names += [argument.name] * count
    return names


def joins_buckets(nodes: list[Any], devices: list[str]) -> list[str]:
    """Ops that compute nothing, and give several tensors to owners of weights, none before all are there."""
    found = []
    for node in (node for node in nodes if node.op == "IdentityN"):
        outputs = [node.name, *(f"{node.name}:{number}" for number in range(1, len(node.input)))]
        readers = [[other for other in nodes if output in other.input] for output in outputs]
        pairs = zip(node.input, readers, strict=False)
        if len({given for given, by in pairs if any(_goes_to_owner(reader, devices) for reader in by)}) > 1:
            found.append(node.name)
    return found


def _goes_to_owner(reader: Any, devices: list[str]) -> bool:
    receiver = reader.attr["recv_device"].s.decode().rsplit("device:", 1)[-1]
    return reader.op == "AddN" or (reader.op == "_Send" and receiver in devices)


def ancestors(node: Any, nodes: list[Any]) -> list[Any]:
    """What has to run on its device before an op."""
    by_name, found, pending = {other.name: other for other in nodes}, {}, list(node.input)
    while pending:
        name = pending.pop().lstrip("^").partition(":")[0]
        if name in by_name and name not in found:
            found[name] = by_name[name]
            pending += by_name[name].input
    return list(found.values())
