"""The structure of a gradient: which outputs it comes from, and which weights it reaches.

A gradient tape hands a function zeros where nothing depends on an output. One device knows more: a weight on which the
loss does not depend gets no gradient at all, so that weight decay leaves it alone. This is carried past the tape.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.private_api.graphs import body_of

CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # of functions


@dataclass
class GradientStructure:
    """Findings of the backward pass of one call: from results through replicas to owners. A tape may make several.

    Attributes:
        used: numbers of the results (outputs, then added losses) on which the differentiated value depends.
    """

    used: set[int] = field(default_factory=set)
    _watched: dict[int, tf.Tensor] = field(default_factory=dict)  # by their numbers
    _always: set[int] = field(default_factory=set)  # numbers of results that cannot be watched
    _connected: set[int] = field(default_factory=set)  # numbers of the weights on which that depends
    _at_owners: bool = False
    _of_replicas: dict[int, list[tf.Tensor | tf.IndexedSlices | None]] = field(default_factory=dict)

    def of_replicas(
        self, table: int, gradient: tf.Tensor | tf.IndexedSlices | None, num_replicas: int
    ) -> list[tf.Tensor | tf.IndexedSlices]:
        """The gradients of a table, by its id, from all replicas that have one, once the last has told its own."""
        told = self._of_replicas.setdefault(table, [])
        told.append(gradient)
        if len(told) < num_replicas:
            return []
        return [each for each in self._of_replicas.pop(table) if each is not None]

    def watch(self, x: tf.Tensor, number: int) -> tf.Tensor:
        """`x`, and a note that this result was used when a gradient comes back through it."""
        if not (x.dtype.is_floating or x.dtype.is_complex):
            return x

        @custom_gradient
        def watched(value: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
            def note(upstream: tf.Tensor) -> tf.Tensor:
                self._go_on()
                self.used.add(number)
                return upstream

            return tf.identity(value), note

        self._watched[number] = watched(x)
        return self._watched[number]

    def behind(self, tensor: tf.Tensor, handles: Sequence[tf.Tensor]) -> tuple[set[int], set[int]]:
        """Numbers of the results that a tensor of the same graph depends on; of handles, those it does by itself."""
        numbers = list(self._watched)
        reached = inputs_reached([tensor], [*self._watched.values(), *handles])
        used = {numbers[i] for i in reached if i < len(numbers)} | self._always
        return used, {i - len(numbers) for i in reached if i >= len(numbers)}

    def take_for_used(self, numbers: Iterable[int]) -> None:
        """Takes results for used that cannot be watched."""
        self._always.update(numbers)
        self.used.update(numbers)

    def connect(self, weights: Iterable[int]) -> None:
        """Notes weights that a replica has a gradient for."""
        self._go_on()
        self._connected.update(weights)

    def connected(self, weights: Iterable[int]) -> set[int]:
        """Those of the weights for which any replica has a gradient. Owners ask, after all replicas."""
        self._at_owners = True
        return self._connected.intersection(weights)

    def any_used(self, numbers: Collection[int]) -> bool:
        """Return whether any of these results was used. Owners ask, after all replicas."""
        self._at_owners = True
        return not self.used.isdisjoint(numbers)

    def _go_on(self) -> None:
        """Begins anew where the backward pass before this one has come to the owners."""
        if self._at_owners:
            self.used, self._connected, self._at_owners = set(self._always), set(), False


def inputs_reached(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> set[int]:
    """Numbers of the inputs from which a gradient path leads to any of the outputs, through no other input.

    Walks the graph backward, and those of the functions that it calls. No gradient passes whole numbers or
    `stop_gradient`; a branch or loop is taken to connect all it has.
    """
    ends, seen = set(map(id, inputs)), set[int]()
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen or tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.op.type == "StopGradient":
            continue
        seen.add(id(tensor))
        if id(tensor) not in ends:
            pending.extend(_behind(tensor))
    return {number for number, tensor in enumerate(inputs) if id(tensor) in seen}


def _behind(tensor: tf.Tensor) -> Sequence[tf.Tensor]:
    """The inputs of the op that makes a tensor; of a call, those that lead to this result."""
    op = tensor.op
    if op.type not in CALLS:
        return op.inputs
    body = body_of(op, "f")
    if len(body.outputs) != len(op.outputs):  # rewritten for a gradient, it gives what that needs as well
        return op.inputs
    return [op.inputs[i] for i in inputs_reached([body.outputs[tensor.value_index]], body.inputs)]
