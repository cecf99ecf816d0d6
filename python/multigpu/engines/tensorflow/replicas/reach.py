"""Find from a replica's trace which weights lead to which results.

A function has gradients, which may be zero, for all weights that lead to any of its results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import bodies_of
from multigpu.engines.tensorflow.weights.gradient_structure import inputs_reached

SUMS = (  # ops whose gradients depend on shapes alone
    *("Add", "AddN", "AddV2", "BiasAdd", "Cast", "ConcatV2", "ExpandDims", "Identity", "IdentityN", "Mean", "Neg"),
    *("Pack", "Reshape", "Squeeze", "StridedSlice", "Sub", "Sum", "Transpose"),
)


def _gradients(targets: Sequence[tf.Tensor], sources: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    found = tf.gradients(targets, sources)
    return tf.nest.flatten([x for x in found if x is not None], expand_composites=True)


@dataclass(frozen=True, eq=False)
class Reach:
    """The paths from weights to results in one trace.

    Attributes:
        function: the trace.
        results: its results, in its graph.
        num_weights: the number of weights, which are its first inputs.
        tables: the variables that it reads itself.
    """

    function: tf.types.experimental.ConcreteFunction
    results: Sequence[tf.Tensor]
    num_weights: int
    tables: Sequence[tf.Variable]
    _of_gradients: dict[tuple, set[int]] = field(default_factory=dict)  # answers that are known

    def weights_of(self, used: Iterable[int]) -> set[int]:
        """Return the numbers of the weights that lead to any of these results."""
        return {number for number in self._inputs_of(used) if number < self.num_weights}

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
            targets, sources = [self.results[i] for i in used], [graph.inputs[i] for i in inputs]
            with graph.as_default():  # the gradients are not in it
                of_results = tf.function(lambda: _gradients(targets, sources), autograph=False).get_concrete_function()
            captured = of_results.graph.captures
            read = inputs_reached(of_results.graph.outputs, [inside for _, inside in captured])
            reached = inputs_reached([captured[number][0] for number in read], graph.inputs)
            self._of_gradients[used, inputs] = {number for number in reached if number < self.num_weights}
        return self._of_gradients[used, inputs]

    def tables_of(self, used: Iterable[int]) -> set[int]:
        """Return the ids of the handles of tables that lead to these results. They follow a trace's inputs."""
        function: Any = self.function
        captured = function.captured_inputs
        first, reached = len(function.inputs) - len(captured), self._inputs_of(used)
        handles = {id(handle) for number, handle in enumerate(captured, first) if number in reached}
        return handles.intersection(id(table.handle) for table in self.tables)

    def _inputs_of(self, used: Iterable[int]) -> set[int]:
        function: Any = self.function
        return inputs_reached([self.results[number] for number in used], function.inputs)


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
