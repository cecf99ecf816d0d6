"""Arrays and functions as batches. Keras on JAX cuts rows of arrays when their turn comes: nothing has to help it."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from multigpu.base.arrays import kept_type


class Batches:
    """Batches of arrays, in order, as often as they are asked for."""

    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        self._data, self._size = keras.utils.pack_x_y_sample_weight(x, y), batch_size

    def __iter__(self) -> Iterator[Any]:
        rows = len(keras.tree.flatten(self._data)[0])
        for number in range(math.ceil(rows / self._size)):
            at = slice(number * self._size, (number + 1) * self._size)
            yield keras.tree.map_structure(lambda array, at=at: _typed(array[at]), self._data)

    def release(self) -> None:
        """Nothing refers to the arrays but this object."""


def _typed(rows: np.ndarray) -> np.ndarray:
    return rows.astype(kept_type(rows))


def batches(x: Any, y: Any = None, batch_size: int = 32) -> tuple[Batches, Batches]:
    """Batches of arrays; and what releases the arrays in the end, which is the same object."""
    made = Batches(x, y, batch_size)
    return made, made


def call_fit(verb: Callable, arguments: dict[str, Any]) -> keras.callbacks.History:
    """Calls a model's `fit`."""
    return verb(**arguments)


def call_with_batches(verb: Callable, arguments: dict[str, Any]) -> Any:
    """Calls a model's `evaluate` or `predict`."""
    return verb(**arguments)


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> Iterator[Any]:
    """The batches of an iterator; Keras asks for each before its step."""
    del spec  # which batches tell themselves
    return batches()
