"""Arrays and functions as batches. Keras on JAX cuts rows of arrays batch by batch, and needs no help."""

from collections.abc import Callable, Iterator
from typing import Any

from multigpu.base.arrays import Batches


def batches(x: Any, y: Any = None, batch_size: int = 32) -> tuple[Batches, Batches]:
    """Return batches of arrays, and the object that releases the arrays at the end, which is the same."""
    made = Batches(x, y, batch_size)
    return made, made


def call_with_batches(verb: Callable, arguments: dict[str, Any]) -> Any:
    """Call a model's `fit`, `evaluate` or `predict`."""
    return verb(**arguments)


call_fit = call_with_batches


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> Iterator[Any]:
    """Return the batches of an iterator. Keras requests each before its step. They need no `spec`."""
    return batches()
