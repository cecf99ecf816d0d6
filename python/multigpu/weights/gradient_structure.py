"""The structure of a gradient: which outputs it comes from, which weights it reaches, and which of them get rows.

A gradient tape hands a function zeros where nothing depends on an output. One device knows more: a weight on which the
loss does not depend gets no gradient at all, so that weight decay leaves it alone. This is carried past the tape. A
table that was looked up gets rows: it travels by itself, so that the tape carries these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from multigpu.private_api.gradients import custom_gradient

PASSED_ON = ("Identity", "Cast")  # ops whose gradient is rows where that of their result is


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
    """Numbers of the weights whose gradient may be rows: those that the function, or one that it calls, looks up.

    Args:
        function: of the weights and other tensors.
        num_weights: how many of its inputs, the first ones, are weights.
    """
    called = {each.signature.name: _Body(each) for each in function.graph.as_graph_def().library.function}
    body = _Body(function.function_def)
    return [number for number in range(num_weights) if body.looks_up(body.inputs[number], called)]


class _Body:
    """What a function does with its inputs."""

    def __init__(self, definition: Any) -> None:
        self.inputs = [argument.name for argument in definition.signature.input_arg]
        self._readers: dict[str, list[tuple[Any, int]]] = {}
        for node in definition.node_def:
            for position, source in enumerate(node.input):
                self._readers.setdefault(source.partition(":")[0], []).append((node, position))

    def looks_up(self, name: str, called: Mapping[str, "_Body"]) -> bool:
        """Whether rows are taken of a tensor, of a copy of it, or of what it is in a function that it is given to."""
        return any(
            "Gather" in node.op
            or (node.op.startswith(PASSED_ON) and self.looks_up(node.name, called))
            or any(
                inner.looks_up(inner.inputs[place], called)
                for inner in (called[f] for f in _functions_of(node) if f in called)
                for place in (position, position - 1)  # the first input of a branch is what decides
                if 0 <= place < len(inner.inputs)
            )
            for node, position in self._readers.get(name, [])
        )


def _functions_of(node: Any) -> Iterator[str]:
    """Names of the functions that an op calls."""
    for value in node.attr.values():
        yield from (each.name for each in (value.func, *value.list.func) if each.name)


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
