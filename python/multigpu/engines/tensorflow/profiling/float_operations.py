"""Count the floating-point operations of a graph with TensorFlow's profiler, and find ops that it does not count.

The profiler returns 0 for an op without a formula, whether it is a cast or a loop of a thousand products of matrices.
So an op without a number counts as almost nothing only if its type is listed here. An op that calls a function counts
as the function's graph. Einsum, which every attention layer of Keras uses, has a formula here.
"""

import contextlib
import io
import logging
import math
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import CALLS, body_of
from multigpu.engines.tensorflow.profiling.activation_memory import IN_PLACE, VIEWS

LIGHT = {  # types of ops that move numbers, or compute little with each
    *VIEWS,
    *IN_PLACE,
    *("Placeholder", "Pack", "Unpack", "ConcatV2", "Split", "SplitV", "Slice", "StridedSlice", "Transpose", "Tile"),
    *("Pad", "PadV2", "MirrorPad", "ReverseV2", "GatherV2", "GatherNd", "ResourceGather", "Fill", "ZerosLike", "Rank"),
    *("OnesLike", "Range", "OneHot", "BroadcastTo", "SpaceToBatchND", "BatchToSpaceND", "SpaceToDepth", "DepthToSpace"),
    *("Size", "EnsureShape", "Roll", "Abs", "Sign", "Floor", "Ceil", "Round", "FloorDiv", "FloorMod", "DivNoNan"),
    *("Log1p", "Expm1", "Erf", "Erfc", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atan", "Atanh", "Atan2"),
    *("Softplus", "Softsign", "LogSoftmax", "Reciprocal", "Pow", "SquaredDifference", "L2Loss", "ClipByValue", "IsNan"),
    *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalNot"),
    *("Select", "All", "Any", "Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "Cumsum", "Cumprod"),
    *("Bucketize", "DenseBincount", "LookupTableFindV2", "AsString", "StringToHashBucketFast", "Assert"),
    *("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ImageProjectiveTransformV3"),
    *("StatelessRandomGetKeyCounter", "StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessRandomGetAlg"),
    *("StatelessTruncatedNormalV2", "StatelessRandomUniformIntV2", "StatelessRandomUniformFullIntV2"),
    *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
    *("TensorListReserve", "TensorListFromTensor", "TensorListStack", "TensorListGetItem", "TensorListSetItem"),
}


class Profile:
    """The counts of TensorFlow's profiler for a graph."""

    def __init__(self, graph: tf.Graph) -> None:
        builder = tf.compat.v1.profiler.ProfileOptionBuilder
        with _in_silence():
            options = builder(builder.float_operation()).with_empty_output().build()
            root = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
        self._counted = {node.name: node.float_ops for node in _nodes(root)}

    def work(self, ops: Iterable[tf.Operation]) -> int | None:
        """Return the floating-point operations of some ops of the graph. None if one of them is unknown."""
        return total(self._counted.get(op.name) or _uncounted(op) for op in ops)


def work_of(graph: tf.Graph) -> int | None:
    """Return the floating-point operations of a whole graph."""
    return Profile(graph).work(graph.get_operations())


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum. None if one of the numbers is unknown."""
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _uncounted(op: tf.Operation) -> int | None:
    """Return the operations of an op for which the profiler has no number."""
    if op.type in CALLS:
        return work_of(body_of(op, "f"))
    if not all(x.shape.is_fully_defined() for x in op.outputs if x.dtype not in (tf.resource, tf.variant)):
        return None
    return _einsum(op) if op.type == "Einsum" else 0 if op.type in LIGHT else None


def _einsum(op: tf.Operation) -> int | None:
    """Return two for each product: there are as many as values of all indices together."""
    operands = op.get_attr("equation").decode().split("->")[0].split(",")
    lengths: dict[str, int] = {}
    for letters, x in zip(operands, op.inputs, strict=True):
        if "." in letters or len(operands) != 2:
            return None
        lengths.update(zip(letters, x.shape, strict=True))
    return 2 * math.prod(lengths.values())


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Hide the profiler's messages: how many ops it does not count, and that a part of it is old."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
