"""The parts of a template: which ops of a replica's trace belong to which, by the scopes in which they were made."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.cluster.one_worker import Merge

Sum: TypeAlias = tuple[tf.Tensor, tf.Tensor, Merge | None]
Scope: TypeAlias = Callable[[str], contextlib.AbstractContextManager[None]]

_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("scope of a part", default=None)


class Parts:
    """The parts of a template as one run of it shows them.

    Attributes:
        devices: that the template names, one for each part.
        sums: of each tensor that stands for what all slices have, in one, what this slice has, both in the trace; and
            how it is merged, None for a sum of gradients.
        on_tape: whether a tape will follow them from stage to stage, and no gradient is taken in the trace.
    """

    def __init__(self, devices: Sequence[str], group: Sequence[str], on_tape: bool = False) -> None:
        """Takes the devices that the template names, one for each part, and those where it runs if op by op."""
        self.on_tape = on_tape
        self.devices, self._group = tuple(devices), tuple(group)
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._scopes: list[tuple[range, int]] = []
        self.sums: list[Sum] = []

    @contextlib.contextmanager
    def scope(self, device: str) -> Iterator[None]:
        """Ops made in it belong to the part on this device. A device that is no part, such as the host, is kept."""
        if device not in self.devices or tf.executing_eagerly():
            with tf.device(dict(zip(self.devices, self._group, strict=True)).get(device, device)):
                yield
            return
        if self._graph is None or tf.compat.v1.get_default_graph() is not self._graph:
            raise refuse(
                "parts in the call of the model itself, so that it can be cut between them",
                f"`on_device({device!r})` inside of a `tf.function` or of a loop",
                "Call the layers of each part outside of it.",
            )
        first = self._graph.version
        yield
        self._scopes.append((range(first, self._graph.version), self.devices.index(device)))

    def of_ops(self, ops: Sequence[tf.Operation]) -> list[int | None]:
        """The part of each op of the trace, given in the order in which they were made; None outside of any scope."""
        parts: list[int | None] = [None if self.devices else 0] * len(ops)
        for made, part in reversed(self._scopes):  # scopes end from the inside out: the innermost counts
            parts[made.start : made.stop] = [part] * len(parts[made.start : made.stop])
        return parts

    def over_slices(self, x: tf.Tensor, merge: Merge | None = None) -> tf.Tensor:
        """Stands for what all slices have, in one.

        Args:
            x: what this slice has.
            merge: how that of several is merged; where nothing is given, `x` is a gradient, and is summed.
        """
        total = tf.identity(x)
        self.sums.append((total, x, merge))
        return total


def in_parts() -> bool:
    """Return whether this code is being run by a replica that has parts."""
    return _scope.get() is not None


@contextlib.contextmanager
def scopes_noted(scope: Scope) -> Iterator[None]:
    """While it lasts, `scope` is what a scope of `on_device()` is, given the device."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def part_scope(device: str) -> contextlib.AbstractContextManager[None] | None:
    """The scope of the part on a device, in a replica that has parts; else None."""
    scope = _scope.get()
    return None if scope is None else scope(device)


def parts_of_ops(ops: Sequence[tf.Operation], forward: Sequence[int | None]) -> dict[str, int | None]:
    """The part of each op, by name: one that follows the forward pass has that of the op which it differentiates.

    Args:
        ops: of the trace, in the order in which they were made.
        forward: the parts of the first ones, those of the forward pass.
    """
    parts = {op.name: part for op, part in zip(ops, forward, strict=False)}
    for op in ops[len(forward) :]:
        named = [group.decode().removeprefix("loc:@") for group in op.colocation_groups()]
        parts[op.name] = next((parts[name] for name in named if parts.get(name) is not None), None)
    return parts
