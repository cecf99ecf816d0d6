"""Arrays and functions as batches. Keras on JAX cuts rows of arrays batch by batch, and needs no help."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


def arguments_with_batches(arguments: dict[str, Any]) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Return the arguments of a model's `fit`, `evaluate` or `predict`, for a `with` block."""
    return contextlib.nullcontext(arguments)


fit_arguments = arguments_with_batches


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> Iterator[Any]:
    """Return the batches of an iterator. Keras requests each before its step. They need no `spec`."""
    return batches()
