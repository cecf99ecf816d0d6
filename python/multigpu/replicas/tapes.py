"""Tapes of replicas, and until when they are kept."""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf


class Taped(NamedTuple):
    """A forward pass that can be differentiated once."""

    tape: tf.GradientTape
    sources: list[tf.Tensor]
    results: list[tf.Tensor]


_of_the_verb: contextvars.ContextVar[list[list[Taped]] | None] = contextvars.ContextVar("_of_the_verb", default=None)


@contextlib.contextmanager
def tapes_released() -> Iterator[None]:
    """Lets go of the tapes that a verb has left unasked, such as those of predictions.

    What a tape has recorded is in a circle with its graph, and a part of that circle is in C++, where Python's garbage
    collector does not see it: all of it would stay, with the model.
    """
    token = _of_the_verb.set([])
    try:
        yield
    finally:
        for taped in _of_the_verb.get() or []:
            taped.clear()
        _of_the_verb.reset(token)


def release_with_the_verb(taped: list[Taped]) -> None:
    """Empties the list when the verb ends in which this is called, if any: a loop of one's own may ask later."""
    of_the_verb = _of_the_verb.get()
    if of_the_verb is not None:
        of_the_verb.append(taped)


def floating(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Those of the tensors that a tape can watch."""
    return [x for x in tensors if is_differentiable(x)]


def is_differentiable(x: tf.Tensor) -> bool:
    """Whether a tensor can carry a gradient."""
    return x.dtype.is_floating or x.dtype.is_complex


def untaped(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Hides tensors from the outer tapes, which would otherwise prepare for higher orders at a high price."""
    return [tf.stop_gradient(x) if is_differentiable(x) else x for x in tensors]
