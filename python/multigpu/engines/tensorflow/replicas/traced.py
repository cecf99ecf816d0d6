"""The facts that a run of a replica shows besides its results: a trace once, a run op by op for its slice.

A trace also tells which weights lead to which results: a function has gradients, which may be zero, for all weights
that lead to any of its results.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import has_gradient_of_user
from multigpu.engines.tensorflow.private_api.graphs import CALLS, bodies_of, body_of, types_of_ops
from multigpu.engines.tensorflow.replicas.global_batch import GlobalBatchCalls
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls
from multigpu.engines.tensorflow.replicas.noise import Draw
from multigpu.engines.tensorflow.replicas.outputs import OutputLayout
from multigpu.engines.tensorflow.replicas.parts import Parts
from multigpu.engines.tensorflow.replicas.state import Updates
from multigpu.engines.tensorflow.replicas.tapes import is_differentiable
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.gradient_structure import inputs_reached, tensors_behind
from multigpu.engines.tensorflow.weights.rows import Rows

SUMS = (  # ops whose gradients depend on shapes alone
    *("Add", "AddN", "AddV2", "BiasAdd", "Cast", "ConcatV2", "ExpandDims", "Identity", "IdentityN", "Mean", "Neg"),
    *("Pack", "Reshape", "Squeeze", "StridedSlice", "Sub", "Sum", "Transpose"),
)

DRAWS = {"RandomUniformInt", "RngReadAndSkip", "StatefulUniformFullInt"}  # ops for noise of TensorFlow's generators
OF_ZEROS_ZERO = (  # ops whose gradient of zeros is zero, where their numbers are finite
    *(*SUMS, "Abs", "Atan", "AvgPool", "AvgPool3D", "BatchMatMulV2", "BroadcastTo", "ClipByValue", "Conv2D"),
    *("Conv2DBackpropInput", "Conv3D", "Cos", "Cumsum", "DepthwiseConv2dNative", "DivNoNan", "Einsum", "Elu", "Erf"),
    *("Erfc", "Fill", "FusedBatchNormV3", "GatherNd", "GatherV2", "L2Loss", "LeakyRelu", "LogSoftmax", "MatMul"),
    *("Max", "MaxPool", "MaxPool3D", "Maximum", "Min", "Minimum", "MirrorPad", "Mul", "MulNoNan", "OnesLike", "Pad"),
    *("PadV2", "Relu", "Relu6", "ResizeBilinear", "ResizeNearestNeighbor", "ReverseV2", "Rsqrt", "SelectV2", "Selu"),
    *("Sigmoid", "Sin", "Slice", "Softmax", "Softplus", "Softsign", "Split", "SplitV", "Square", "SquaredDifference"),
    *("Tanh", "TensorListFromTensor", "TensorListSetItem", "Tile", "Unpack", "ZerosLike"),
)


def _gradients(targets: Sequence[tf.Tensor], sources: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    found = tf.gradients(targets, sources)
    return tf.nest.flatten([x for x in found if x is not None], expand_composites=True)


@dataclass(frozen=True, eq=False)
class Reach:
    """The paths from weights to results in one trace.

    Attributes:
        function: the trace.
        num_weights: the number of weights, which are its first inputs.
        has_custom_gradient: whether code of a user has a custom gradient in it.
    """

    function: tf.types.experimental.ConcreteFunction
    num_weights: int
    has_custom_gradient: bool
    _of_gradients: dict[tuple, set[int]] = field(default_factory=dict)  # answers that are known

    def weights_of(self, used: Iterable[int]) -> set[int]:
        """Return the numbers of the weights that lead to any of these results."""
        return {number for number in self._inputs_of(used) if number < self.num_weights}

    def cut(self, used: Iterable[int]) -> frozenset[int]:
        """Return the numbers of other results from which no gradient may come back, not even one of zeros.

        A function has a gradient for all of its results: of zeros for those that are not used. It is NaN where a
        derivative is infinite, as of `log` at 0; it may be anything if a user wrote it; and some ops have none.
        """
        results = self.function.outputs
        return frozenset(without_zeros(results, {n: results[n] for n in used}, self.has_custom_gradient))

    def added(self) -> set[int]:
        """Return the numbers of the weights that are only added to results: no other gradient depends on them."""
        function: Any = self.function
        return {number for number, x in enumerate(function.inputs[: self.num_weights]) if _is_added(x)}

    def weights_of_gradients(self, used: tuple[int, ...], inputs: tuple[int, ...]) -> set[int]:
        """Return the numbers of the weights that lead to gradients of these results by these inputs.

        If the trace calls functions, which TensorFlow rewrites to compute their gradients, it returns the weights that
        lead to the results.
        """
        graph: Any = self.function.graph
        if any(True for op in graph.get_operations() for _ in bodies_of(op)):
            return self.weights_of(used)
        if (used, inputs) not in self._of_gradients:
            targets, sources = [graph.outputs[i] for i in used], [graph.inputs[i] for i in inputs]
            with graph.as_default():  # the gradients are not in it
                of_results = tf.function(lambda: _gradients(targets, sources), autograph=False).get_concrete_function()
            captured = of_results.graph.captures
            read = inputs_reached(of_results.graph.outputs, [inside for _, inside in captured])
            reached = inputs_reached([captured[number][0] for number in read], graph.inputs)
            self._of_gradients[used, inputs] = {number for number in reached if number < self.num_weights}
        return self._of_gradients[used, inputs]

    def tables_of(self, used: Iterable[int]) -> set[int]:
        """Return the ids of the captured tensors, such as handles of tables, that lead to these results."""
        function: Any = self.function
        first, reached = len(function.inputs) - len(function.captured_inputs), self._inputs_of(used)
        return {id(handle) for number, handle in enumerate(function.captured_inputs, first) if number in reached}

    def _inputs_of(self, used: Iterable[int]) -> set[int]:
        function: Any = self.function
        return inputs_reached([function.outputs[number] for number in used], function.inputs)


def without_zeros(
    results: Sequence[tf.Tensor], used: Mapping[int, tf.Tensor], has_custom_gradient: bool = True
) -> list[int]:
    """Return the numbers of other results whose gradient of zeros need not be zero, up to what used ones depend on.

    Args:
        results: the results of a function, in its graph.
        used: the results that are used, by number.
        has_custom_gradient: whether code of a user has a custom gradient in the graph. Those of TensorFlow, as of silu,
            are zero.
    """
    behind_used = tensors_behind(list(used.values()))

    def is_zero(x: tf.Tensor) -> bool:
        op = x.op
        if op.type in CALLS:
            body = body_of(op, "f").outputs
            of_used = {n: body[n] for n, output in enumerate(op.outputs) if id(output) in behind_used}
            return x.value_index not in without_zeros(body, of_used, has_custom_gradient)
        if not any(map(is_differentiable, op.inputs)):
            return True
        if op.type == "RealDiv":
            return bool(np.all(tf.get_static_value(op.inputs[1])))  # False if the value is not known
        if bodies := [body for body, _ in bodies_of(op)]:  # of a branch or loop
            return all(is_zero(made) for body in bodies for each in body.get_operations() for made in each.outputs)
        return op.type in OF_ZEROS_ZERO and not (has_custom_gradient and has_gradient_of_user(op))

    others = {n: tensors_behind([x], behind_used) for n, x in enumerate(results) if n not in used}
    own = {n: [x for key, x in found.items() if key not in behind_used] for n, found in others.items()}
    return [number for number, found in own.items() if not all(map(is_zero, found))]


def _is_added(x: tf.Tensor) -> bool:
    """Return whether a graph uses a tensor only in sums."""
    seen, pending = set[int](), [x]
    while pending:
        for op in pending.pop().consumers():
            made = [output for output in op.outputs if output.dtype.is_floating or output.dtype.is_complex]
            if made and op.type not in SUMS:
                return False
            pending += [output for output in made if id(output) not in seen]
            seen.update(map(id, made))
    return True


Note: TypeAlias = Callable[["Traced"], None]


@dataclass(frozen=True, eq=False)
class Traced:
    """The facts that a run has shown.

    A run gives them to a `Note`, and gives back only tensors: a graph keeps all that its function gives back, and
    TensorFlow keeps the graphs of custom gradients, such as that of silu. It would keep the template, too.

    Attributes:
        calls: the calls of layers.
        parts: the parts of the template to which ops belong.
        layout: the layout of the results.
        global_batch: the calls to compute from the merged results.
        updates: the variables that the template assigns, and how they are sent.
        types: the types in which each weight can be sent.
        reads: how often each variable was read, by its id.
        carried: the variables that a branch or loop assigns. Only a run that carries all of them is complete.
        draws: the random draws of a run op by op.
        of_slices: the layers that used the statistics of a slice.
        tables: the variables that it reads itself and to which gradients flow: tables, and variables unknown to Keras.
        rows_of_tables: how the rows of each table's gradient are added, by its id.
        function: the trace, whose ops have no device: they run on the device of the call. None for a run op by op.
        using: the traces for gradients, by the numbers of the results that are used: this one, or one that is cut.
    """

    calls: LayerCalls
    parts: Parts
    layout: OutputLayout
    global_batch: GlobalBatchCalls
    updates: Updates
    types: Sequence[Types]
    reads: Mapping[int, int]
    carried: Sequence[keras.Variable]
    draws: Sequence[Draw]
    of_slices: Sequence[keras.Layer]
    tables: Sequence[tf.Variable]
    rows_of_tables: Mapping[int, Rows]
    function: tf.types.experimental.ConcreteFunction | None = None
    using: dict[tuple[int, ...], tf.types.experimental.ConcreteFunction | None] = field(default_factory=dict)

    def rows_of(self, table: tf.Variable) -> Rows:
        """Return how the rows of a table's gradient are added."""
        return self.rows_of_tables.get(id(table), Rows.APART)

    @functools.cached_property
    def reach(self) -> Reach | None:
        """Which weights lead to which results. Unknown op by op, where all tensors with a gradient lead to one."""
        if self.function is None:
            return None
        return Reach(self.function, len(self.types), bool(self.calls.with_custom_gradient))

    @functools.cached_property
    def is_repeatable(self) -> bool:
        """Whether a second run draws the same noise: what TensorFlow's generators draw is in no input."""
        return self.function is not None and not DRAWS.intersection(types_of_ops(self.function.graph.as_graph_def()))

    def give_kept(self, merged: Sequence[tf.Tensor]) -> None:
        """Give layers the merged tensors of attributes in which a replica has stored those of its slice."""
        given = iter(merged)
        for each in self.calls.kept_with_rows:
            each.give(list(itertools.islice(given, len(each.tensors))))


def with_facts(run: Callable[..., list[tf.Tensor]], *inputs: tf.Tensor) -> tuple[list[tf.Tensor], Traced]:
    """Return the results of a run, and what it has shown."""
    shown: list[Traced] = []
    return run(shown.append, *inputs), shown[-1]
