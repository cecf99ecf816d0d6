"""Record the structure of a gradient: the outputs that it comes from, and the weights that it reaches.

A gradient tape passes zeros to a function for outputs that are not used. On one device, a weight on which the loss does
not depend gets no gradient at all, so weight decay does not change it. This module passes that information around the
tape.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import with_gradient
from multigpu.engines.tensorflow.private_api.graphs import CALLS, body_of

ENDS = ("Ceil", "Floor", "Rint", "Round", "StopGradient")  # ops whose gradient is None


@dataclass
class GradientStructure:
    """Findings of the backward pass of one call, from results through replicas to owners. A tape may run several.

    Attributes:
        used: numbers of the results (outputs, then added losses) on which the differentiated value depends.
        number: of this pass. A gradient of its gradients is asked for in a later one.
    """

    used: set[int] = field(default_factory=set)
    number: int = 0
    _watched: dict[int, tf.Tensor] = field(default_factory=dict)  # by the numbers of the results
    _connected: set[int] = field(default_factory=set)  # numbers of the weights on which the value depends
    _at_owners: bool = False
    _asked: set[int] = field(default_factory=set)  # ids of the variables that were asked about
    _of_replicas: dict[int, list[tf.Tensor | tf.IndexedSlices | None]] = field(default_factory=dict)

    def of_replicas(
        self, table: int, gradient: tf.Tensor | tf.IndexedSlices | None, num_replicas: int
    ) -> list[tf.Tensor | tf.IndexedSlices]:
        """Return a table's gradients from all replicas that have one, when the last replica has added its own."""
        told = self._of_replicas.setdefault(table, [])
        told.append(gradient)
        if len(told) < num_replicas:
            return []
        return [each for each in self._of_replicas.pop(table) if each is not None]

    def watch(self, x: tf.Tensor, number: int) -> tf.Tensor:
        """Return `x`, and record that this result was used when a gradient comes back through it."""
        if not (x.dtype.is_floating or x.dtype.is_complex):
            return x

        def note(upstream: tf.Tensor) -> tf.Tensor:
            self._go_on(again=number in self.used)
            self.used.add(number)
            return upstream

        self._watched[number] = with_gradient(x, note)
        return self._watched[number]

    def behind(self, tensor: tf.Tensor, handles: Sequence[tf.Tensor]) -> tuple[set[int], set[int]]:
        """Return the results that a tensor of the same graph depends on, and the handles it depends on otherwise."""
        numbers = list(self._watched)
        reached = inputs_reached([tensor], [*self._watched.values(), *handles])
        used = {numbers[i] for i in reached if i < len(numbers)}
        return used, {i - len(numbers) for i in reached if i >= len(numbers)}

    def connect(self, weights: Iterable[int]) -> None:
        """Record weights that a replica has a gradient for."""
        self._go_on()
        self._connected.update(weights)

    def connected(self, weights: Iterable[int]) -> set[int]:
        """Return the weights for which any replica has a gradient. Owners call this after all replicas."""
        self._at_owners = True
        return self._connected.intersection(weights)

    def any_used(self, numbers: Collection[int], asks: int) -> bool:
        """Return whether any of these results was used. Each owner calls this once, after all replicas."""
        if asks in self._asked:
            self._begin()
        self._asked.add(asks)
        self._at_owners = True
        return not self.used.isdisjoint(numbers)

    def leaves(self, gradient: tf.Tensor, number: int) -> tf.Tensor:
        """Return the gradient of an input, which ends this pass; the next pass notes whether it was used."""
        self._at_owners = True
        return self.watch(gradient, number)

    def begin_after(self, number: int) -> None:
        """Start again if this is still the pass with this number, and its gradient is differentiated."""
        if self.number == number:
            self._begin()

    def _go_on(self, again: bool = False) -> None:
        """Start again if the previous backward pass has reached the owners, or has done the same already."""
        if self._at_owners or again:
            self._begin()

    def _begin(self) -> None:
        self.used, self._connected, self._at_owners = set(), set(), False
        self._asked, self.number = set(), self.number + 1


def inputs_reached(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> set[int]:
    """Return the inputs from which a gradient path leads to any of the outputs, but not through another input."""
    seen = tensors_behind(outputs, set(map(id, inputs)))
    return {number for number, tensor in enumerate(inputs) if id(tensor) in seen}


def tensors_behind(outputs: Sequence[tf.Tensor], ends: Collection[int] = ()) -> dict[int, tf.Tensor]:
    """Return the tensors from which a gradient path leads to any of the outputs, by their ids, up to some ends.

    It walks backward through the graph, and through the functions that the graph calls. Gradients do not pass integers,
    `round` or `stop_gradient`. A branch or loop is assumed to connect all of its inputs and outputs.
    """
    seen: dict[int, tf.Tensor] = {}
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen or tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.op.type in ENDS:
            continue
        seen[id(tensor)] = tensor
        if id(tensor) not in ends:
            pending.extend(_behind(tensor))
    return seen


def _behind(tensor: tf.Tensor) -> Sequence[tf.Tensor]:
    """Return the inputs of the op that makes a tensor; for a call, only the inputs that lead to this result."""
    op = tensor.op
    if op.type not in CALLS:
        return op.inputs
    body = body_of(op, "f")
    if len(body.outputs) != len(op.outputs):  # rewritten for a gradient, it also returns the values for it
        return op.inputs
    return [op.inputs[i] for i in inputs_reached([body.outputs[tensor.value_index]], body.inputs)]
