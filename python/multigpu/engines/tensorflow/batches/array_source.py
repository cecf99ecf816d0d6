"""Large arrays as batches: rows are cut and cast batch by batch, so that the arrays are never copied whole."""

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.arrays import kept_type

CHUNK = 2**23  # bytes that are cut at once, so that what is cut stays in the cache until it is cast
AHEAD = min(4, os.cpu_count() or 1)  # batches that are cut while the model computes, each by a thread


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int = 32,
    shuffle: bool | str = False,
    own: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
) -> tuple[tf.data.Dataset, "ArrayOwner"]:
    """Batches as Keras makes them of arrays, and the rows they are cut from, which have to be released in the end.

    Args:
        x: arrays of shape `(rows, ...)`, in any structure that Keras takes; so are `y` and `sample_weight`.
        y: targets, or None.
        sample_weight: weights, or None.
        batch_size: rows of a batch; the last one may have fewer.
        shuffle: as in Keras: False, True (rows are shuffled again in each epoch), or `"batch"` (within batches).
        own: of a batch's indices, those that this worker takes, and what is to be told with them.

    Returns:
        A dataset of C-ordered batches, floats cast to `keras.config.floatx()`, in the order that Keras has for the
        same random seed; and the rows.
    """
    data = keras.tree.lists_to_tuples(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))  # datasets stack lists
    leaves = keras.tree.flatten(data)
    arrays = [leaf for leaf in leaves if leaf is not None]  # an output may be without targets, or weights
    rows = ArrayOwner(arrays)

    def cut(indices: tf.Tensor) -> Any:
        indices, told = own(indices) if own else (indices, None)
        cut_rows = tf.numpy_function(rows.take, [indices], [kept_type(array) for array in arrays])
        for tensor, array in zip(cut_rows, arrays, strict=True):
            tensor.set_shape((None, *array.shape[1:]))
        in_order = iter(cut_rows)
        packed = keras.tree.pack_sequence_as(data, [None if leaf is None else next(in_order) for leaf in leaves])
        return (packed, told) if own else packed

    return _indices(len(arrays[0]), batch_size, shuffle).map(cut, AHEAD).prefetch(1), rows


class ArrayOwner:
    """Rows of several arrays, until they are released.

    TensorFlow asks for rows on threads of its own. Memory that belongs to R has to be given back on R's thread, so none
    but this object refers to the arrays, and `release()` waits for cuts that are under way.
    """

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays
        self._cuts = 0
        self._changed = threading.Condition()

    def take(self, indices: np.ndarray) -> list[np.ndarray]:
        """The rows at some indices, of every array."""
        with self._changed:
            arrays, self._cuts = self._arrays, self._cuts + 1
        try:
            return [take_rows(array, indices) for array in arrays]
        finally:
            del arrays
            with self._changed:
                self._cuts -= 1
                self._changed.notify_all()

    def release(self) -> None:
        """Lets go of the arrays."""
        with self._changed:
            self._arrays = []
            self._changed.wait_for(lambda: self._cuts == 0)


def take_rows(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """`array[indices]`, C-ordered and cast, without a copy of more than a few rows in between."""
    taken = np.empty((len(indices), *array.shape[1:]), kept_type(array))
    chunk = max(1, CHUNK // max(1, array.itemsize * math.prod(array.shape[1:])))
    for start in range(0, len(indices), chunk):
        taken[start : start + chunk] = array[indices[start : start + chunk]]
    return taken


def _indices(num_rows: int, batch_size: int, shuffle: bool | str) -> tf.data.Dataset:
    """Indices of each batch, with the same random operations as Keras has for arrays: one seed, one order."""

    def order(_: tf.Tensor) -> tf.Tensor:
        indices = tf.range(num_rows, dtype=tf.int64)
        return tf.random.shuffle(indices) if shuffle and shuffle != "batch" else indices

    def in_batches(indices: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(indices).batch(batch_size)

    dataset = tf.data.Dataset.range(1).map(order).prefetch(1).flat_map(in_batches)
    if shuffle == "batch":
        dataset = dataset.map(tf.random.shuffle)
    return dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(num_rows / batch_size)))


@contextmanager
def released() -> Iterator[Callable[[ArrayOwner], None]]:
    """Releases, in the end, all rows that it was given."""
    kept: list[ArrayOwner] = []
    try:
        yield kept.append
    finally:
        for rows in kept:
            rows.release()
