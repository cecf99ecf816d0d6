"""Tapes of replicas, and how long they are kept."""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import tensorflow as tf

from multigpu.base.replaced import set_to

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None
Gradients: TypeAlias = tuple[list[Gradient], list[Gradient]]  # of sources, and of tables


class Differentiable(Protocol):
    """A forward pass that can be differentiated once.

    Attributes:
        sources: its inputs.
        results: its results.
    """

    sources: list[tf.Tensor]
    results: list[tf.Tensor]

    def gradients(self, used: Sequence[int], upstream: Sequence[tf.Tensor], tables: Sequence[tf.Variable]) -> Gradients:
        """Return gradients of the sources and of tables, from those of some results, given by their numbers."""


@dataclass
class Taped:
    """A forward pass under a tape."""

    tape: tf.GradientTape
    sources: list[tf.Tensor]
    results: list[tf.Tensor]

    def gradients(self, used: Sequence[int], upstream: Sequence[tf.Tensor], tables: Sequence[tf.Variable]) -> Gradients:
        """Return gradients of the sources and of tables, which have a gradient if another tape is around."""
        targets = [self.results[i] for i in used]
        return self.tape.gradient(targets, [self.sources, list(tables)], output_gradients=list(upstream))


_end_of_verb: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar("_end_of_verb", default=None)


@contextlib.contextmanager
def tapes_released() -> Iterator[None]:
    """Release the tapes that a method has left unused, such as those of predictions.

    A tape's records form a cycle with its graph. A part of this cycle is in C++, where Python's garbage collector does
    not see it, so all of it would stay in memory, with the model.
    """
    with contextlib.ExitStack() as at_end, set_to(_end_of_verb, at_end):
        yield


def release_with_the_verb(taped: list[Differentiable]) -> None:
    """Empty the list when the surrounding method ends, if any: a custom loop may use it later."""
    at_end = _end_of_verb.get()
    if at_end is not None:
        at_end.callback(taped.clear)


def floating(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the tensors that a tape can watch."""
    return [x for x in tensors if is_differentiable(x)]


def is_differentiable(x: tf.Tensor) -> bool:
    """Return whether a tensor can have a gradient."""
    return x.dtype.is_floating or x.dtype.is_complex


def untaped(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Hide tensors from the outer tapes, which would otherwise prepare for higher orders at a high cost."""
    return [tf.stop_gradient(x) if is_differentiable(x) else x for x in tensors]
