"""The structure of a gradient: which outputs it comes from, which weights it reaches, and which of them get rows.

A gradient tape hands a function zeros where nothing depends on an output. One device knows more: a weight on which the
loss does not depend gets no gradient at all, so that weight decay leaves it alone. This is carried past the tape. A
table that was looked up gets rows: it travels by itself, so that the tape carries these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from multigpu.private_api.gradients import custom_gradient


@dataclass
class GradientStructure:
    """What one call's backward pass finds.

    Attributes:
        used: numbers of the results (outputs, then added losses) on which the differentiated value depends.
        connected: numbers of the weights on which those results depend.
    """

    used: set[int] = field(default_factory=set)
    connected: set[int] = field(default_factory=set)

    def watch(self, x: tf.Tensor, number: int) -> tf.Tensor:
        """`x`, and a note that this result was used when a gradient comes back through it."""
        if not (x.dtype.is_floating or x.dtype.is_complex):
            return x

        @custom_gradient
        def watched(value: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
            def note(upstream: tf.Tensor) -> tf.Tensor:
                self.used.add(number)
                return upstream

            return tf.identity(value), note

        return watched(x)


def weights_with_rows(function: ConcreteFunction, num_weights: int) -> list[int]:
    """Numbers of the weights whose gradient is rows of a table.

    The function is differentiated in a graph that never runs, unless it looks nothing up. TensorFlow keeps what it
    makes for that, and takes it for the gradient in a step.

    Args:
        function: of the weights and other tensors.
        num_weights: how many of its inputs, the first ones, are weights.
    """
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    if not any("Gather" in node.op for node in nodes):
        return []
    found: list[int] = []

    def differentiate(*inputs: tf.Tensor) -> None:
        weights = list(inputs[:num_weights])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([x for x in weights if x.dtype.is_floating])
            results = [x for x in function(*inputs) if x.dtype.is_floating]
        gradients = tape.gradient(results, weights)
        found.extend(number for number, x in enumerate(gradients) if isinstance(x, tf.IndexedSlices))

    specs = [
        tf.TensorSpec(x.shape, x.dtype) for x in function.inputs[: len(function.inputs) - len(function.captured_inputs)]
    ]
    tf.function(differentiate, autograph=False).get_concrete_function(*specs)
    return found


def inputs_reached(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> set[int]:
    """Numbers of the graph inputs from which a gradient path leads to any of the outputs.

    Walks the graph backward. No gradient passes whole numbers or `stop_gradient`; an op that is a function is taken to
    connect all it has.
    """
    seen: set[int] = set()
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen or tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.op.type == "StopGradient":
            continue
        seen.add(id(tensor))
        pending.extend(tensor.op.inputs)
    return {number for number, tensor in enumerate(inputs) if id(tensor) in seen}
