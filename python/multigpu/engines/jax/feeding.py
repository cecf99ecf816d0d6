"""Arrays and functions as batches. Keras on JAX cuts rows of arrays batch by batch, and needs no help."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from multigpu.base.arrays import Batches


def batches(x: Any, y: Any = None, batch_size: int = 32) -> tuple[Batches, Batches]:
    """Return batches of arrays, and the object that releases the arrays at the end, which is the same."""
    made = Batches(x, y, batch_size)
    return made, made


def arguments_with_batches(arguments: dict[str, Any]) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Return the arguments of a model's `fit`, `evaluate` or `predict`, for a `with` block."""
    return contextlib.nullcontext(arguments)


fit_arguments = arguments_with_batches


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> Iterator[Any]:
    """Return the batches of an iterator. Keras requests each before its step. They need no `spec`."""
    return batches()
