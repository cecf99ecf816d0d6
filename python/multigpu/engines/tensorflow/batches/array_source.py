"""Large arrays as batches: rows are cut and cast batch by batch, so that the arrays are never copied whole."""

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.arrays import kept_type

CHUNK = 2**23  # bytes that are cut at once, few enough to stay in the cache until they are cast
AHEAD = min(4, os.cpu_count() or 1)  # batches that threads cut while the model computes


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int = 32,
    shuffle: bool | str = False,
    own: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
) -> tuple[tf.data.Dataset, "ArrayOwner"]:
    """Return batches as Keras makes them of arrays, and the rows that they are cut from, to be released at the end.

    Args:
        x: arrays of shape `(rows, ...)`, in any structure that Keras accepts, as `y` and `sample_weight`.
        y: targets, or None.
        sample_weight: weights, or None.
        batch_size: rows of a batch. The last batch may have fewer.
        shuffle: as in Keras: False, True (rows are shuffled again in each epoch), or `"batch"` (within batches).
        own: a function from a batch's indices to this worker's indices, and values to return with them.

    Returns:
        A dataset of C-ordered batches, with floats cast to `keras.config.floatx()`, in Keras' order for the same random
        seed; and the rows.
    """
    data = keras.tree.lists_to_tuples(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))  # datasets stack lists
    leaves = keras.tree.flatten(data)
    arrays = [leaf for leaf in leaves if leaf is not None]  # an output may have no targets, or no weights
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
    """The owner of several arrays until they are released.

    TensorFlow requests rows on its own threads. Memory of R must be released on R's thread, so only this object refers
    to the arrays, and `release()` waits for threads that are reading them.
    """

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays
        self._cuts = 0
        self._changed = threading.Condition()

    def take(self, indices: np.ndarray) -> list[np.ndarray]:
        """Return the rows of every array at some indices."""
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
        """Release the arrays."""
        with self._changed:
            self._arrays = []
            self._changed.wait_for(lambda: self._cuts == 0)


def take_rows(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return `array[indices]`, C-ordered and cast, without a copy of more than a few rows in between."""
    taken = np.empty((len(indices), *array.shape[1:]), kept_type(array))
    chunk = max(1, CHUNK // max(1, array.itemsize * math.prod(array.shape[1:])))
    for start in range(0, len(indices), chunk):
        taken[start : start + chunk] = array[indices[start : start + chunk]]
    return taken


def _indices(num_rows: int, batch_size: int, shuffle: bool | str) -> tf.data.Dataset:
    """Return the indices of each batch, from Keras' own random operations: one seed gives one order."""

    def order(_: tf.Tensor) -> tf.Tensor:
        indices = tf.range(num_rows, dtype=tf.int64)
        return tf.random.shuffle(indices) if shuffle and shuffle != "batch" else indices

    def in_batches(indices: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(indices).batch(batch_size)

    dataset = tf.data.Dataset.range(1).map(order).prefetch(1).flat_map(in_batches)
    if shuffle == "batch":
        dataset = dataset.map(tf.random.shuffle)
    return dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(num_rows / batch_size)))
