"""Assign the ops of a replica's trace to the parts of a template, by the scopes in which they were made."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import set_to
from multigpu.engines.tensorflow.cluster.reduction import Merge

Sum: TypeAlias = tuple[tf.Tensor, tf.Tensor, Merge | None]
Scope: TypeAlias = Callable[[str], contextlib.AbstractContextManager[None]]

_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("scope of a part", default=None)


class Parts:
    """The parts of a template in one run.

    Attributes:
        devices: the devices that the template names, one for each part.
        sums: for each placeholder of a value merged over slices, the value of this slice, both in the trace, and how
            the values are merged, None for a sum of gradients.
        on_tape: whether a tape follows them from stage to stage, so that the trace computes no gradient.
    """

    def __init__(self, devices: Sequence[str], group: Sequence[str], on_tape: bool = False) -> None:
        """Store the devices that the template names, one for each part, and those of a run op by op."""
        self.on_tape = on_tape
        self.devices, self._group = tuple(devices), tuple(group)
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._scopes: list[tuple[range, int]] = []
        self.sums: list[Sum] = []

    @contextlib.contextmanager
    def scope(self, device: str) -> Iterator[None]:
        """Return a scope whose ops belong to the part on this device. Other devices, such as the host, are kept."""
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
        """Return the part of each op of the trace, in the order in which they were made. None outside of scopes."""
        parts: list[int | None] = [None if self.devices else 0] * len(ops)
        for made, part in reversed(self._scopes):  # inner scopes end first: the innermost counts
            parts[made.start : made.stop] = [part] * len(parts[made.start : made.stop])
        return parts

    def over_slices(self, x: tf.Tensor, merge: Merge | None = None) -> tf.Tensor:
        """Return a placeholder for the merged value of all slices.

        Args:
            x: the value of this slice.
            merge: how the values of slices are merged. By default, `x` is a gradient, and is summed.
        """
        total = tf.identity(x)
        self.sums.append((total, x, merge))
        return total


def scopes_noted(scope: Scope) -> contextlib.AbstractContextManager[None]:
    """Make `scope` receive the device of each scope of `on_device()`, inside a `with` block."""
    return set_to(_scope, scope)


def part_scope(device: str) -> contextlib.AbstractContextManager[None] | None:
    """Return the scope of the part on a device in a replica with parts, otherwise None."""
    scope = _scope.get()
    return None if scope is None else scope(device)


def parts_of_ops(ops: Sequence[tf.Operation], forward: Sequence[int | None]) -> dict[str, int | None]:
    """Return the part of each op, by name. A later op belongs to the part of the op that it differentiates.

    Args:
        ops: the ops of the trace, in the order in which they were made.
        forward: the parts of the first ops, which are the forward pass.
    """
    parts = {op.name: part for op, part in zip(ops, forward, strict=False)}
    for op in ops[len(forward) :]:
        named = [group.decode().removeprefix("loc:@") for group in op.colocation_groups()]
        parts[op.name] = next((parts[name] for name in named if parts.get(name) is not None), None)
    return parts
