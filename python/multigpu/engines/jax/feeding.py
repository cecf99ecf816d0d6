"""Arrays and functions as batches. Keras on JAX cuts rows of arrays batch by batch, and needs no help."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from multigpu.base.arrays import kept_type


class Batches:
    """Batches of arrays, in order, which can be iterated over repeatedly."""

    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        self._data, self._size = keras.utils.pack_x_y_sample_weight(x, y), batch_size

    def __iter__(self) -> Iterator[Any]:
        rows = len(keras.tree.flatten(self._data)[0])
        for number in range(math.ceil(rows / self._size)):
            at = slice(number * self._size, (number + 1) * self._size)
            yield keras.tree.map_structure(lambda array, at=at: _typed(array[at]), self._data)

    def release(self) -> None:
        """Do nothing: only this object refers to the arrays."""


def _typed(rows: np.ndarray) -> np.ndarray:
    return rows.astype(kept_type(rows))


def batches(x: Any, y: Any = None, batch_size: int = 32) -> tuple[Batches, Batches]:
    """Return batches of arrays, and the object that releases the arrays at the end, which is the same."""
    made = Batches(x, y, batch_size)
    return made, made


def call_fit(verb: Callable, arguments: dict[str, Any]) -> keras.callbacks.History:
    """Call a model's `fit`."""
    return verb(**arguments)


def call_with_batches(verb: Callable, arguments: dict[str, Any]) -> Any:
    """Call a model's `evaluate` or `predict`."""
    return verb(**arguments)


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> Iterator[Any]:
    """Return the batches of an iterator. Keras requests each of them before its step."""
    del spec  # the batches have these themselves
    return batches()
