"""The structure of a gradient: which outputs it comes from, which weights it reaches, and which of them get rows.

A gradient tape hands a function zeros where nothing depends on an output, and wants one dense tensor per input back.
One device knows more: a weight on which the loss does not depend gets no gradient at all, so that weight decay leaves
it alone, and a table that was looked up gets rows. This is carried past the tape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.private_api.gradients import custom_gradient


@dataclass
class GradientStructure:
    """What one call's backward pass finds.

    Attributes:
        used: numbers of the results (outputs, then added losses) on which the differentiated value depends.
        connected: numbers of the weights on which those results depend.
        rows: for weights whose gradient is rows of a table, these rows from each replica.
    """

    used: set[int] = field(default_factory=set)
    connected: set[int] = field(default_factory=set)
    rows: dict[int, dict[int, tf.IndexedSlices]] = field(default_factory=dict)

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

    def all_rows(self, weight: int) -> tf.IndexedSlices:
        """The gradient of a table: the rows of all replicas, in the order of the batch."""
        parts = [rows for _, rows in sorted(self.rows[weight].items())]
        return tf.IndexedSlices(
            tf.concat([part.values for part in parts], axis=0),
            tf.concat([part.indices for part in parts], axis=0),
            parts[0].dense_shape,
        )


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
