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

from multigpu.overrides import defined_by_class

LARGE = 2**26  # bytes of arrays that Keras would copy, from which on a copy is worth avoiding
CHUNK = 2**23  # bytes that are cut at once, so that what is cut stays in the cache until it is cast
AHEAD = min(4, os.cpu_count() or 1)  # batches that are cut while the model computes, each by a thread


def fit(model: keras.Model, **arguments: Any) -> keras.callbacks.History:
    """`model.fit(**arguments)` with large arrays viewed rather than copied: same batches, same order, same weights."""
    return model.fit(**arguments) if has_own(model, "fit") else call_fit(model.fit, arguments)


def evaluate(model: keras.Model, **arguments: Any) -> Any:
    """`model.evaluate(**arguments)` with large arrays viewed rather than copied."""
    return model.evaluate(**arguments) if has_own(model, "evaluate") else call_with_batches(model.evaluate, arguments)


def predict(model: keras.Model, **arguments: Any) -> Any:
    """`model.predict(**arguments)` with large arrays viewed rather than copied."""
    return model.predict(**arguments) if has_own(model, "predict") else call_with_batches(model.predict, arguments)


def has_own(model: keras.Model, verb: str) -> bool:
    """Whether the model's class has a verb of its own, which takes the arrays as they are."""
    return defined_by_class(model.__class__, verb) is not None


def call_fit(verb: Callable, arguments: dict[str, Any]) -> keras.callbacks.History:
    """Calls a model's `fit`, with batches in place of large arrays."""
    with released() as keep:
        return verb(**_fit_arguments(arguments, keep))


def call_with_batches(verb: Callable, arguments: dict[str, Any]) -> Any:
    """Calls a model's `evaluate` or `predict`, with batches in place of large arrays."""
    with released() as keep:
        return verb(**_as_batches(arguments, False, arguments.get("steps"), keep))


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int = 32,
    shuffle: bool | str = False,
    own: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
) -> tuple[tf.data.Dataset, "Rows"]:
    """Batches as Keras makes them of arrays, and the rows they are cut from, which have to be released in the end.

    Args:
        x: arrays of shape `(rows, ...)`, in any structure that Keras takes; so are `y` and `sample_weight`.
        y: targets, or None.
        sample_weight: weights, or None.
        batch_size: rows of a batch; the last one may have fewer.
        shuffle: as in Keras: False, True (rows are dealt anew in each epoch), or `"batch"` (within batches).
        own: of a batch's indices, those that this worker takes, and what is to be told with them.

    Returns:
        A dataset of C-ordered batches, floats cast to `keras.config.floatx()`, in the order that Keras has for the
        same random seed; and the rows.
    """
    data = keras.tree.lists_to_tuples(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))  # datasets stack lists
    arrays = keras.tree.flatten(data)
    rows = Rows(arrays)

    def cut(indices: tf.Tensor) -> Any:
        indices, told = own(indices) if own else (indices, None)
        cut_rows = tf.numpy_function(rows.take, [indices], [kept_type(array) for array in arrays])
        for tensor, array in zip(cut_rows, arrays, strict=True):
            tensor.set_shape((None, *array.shape[1:]))
        packed = keras.tree.pack_sequence_as(data, cut_rows)
        return (packed, told) if own else packed

    return _indices(len(arrays[0]), batch_size, shuffle).map(cut, AHEAD).prefetch(1), rows


class Rows:
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


def kept_type(array: np.ndarray) -> np.dtype:
    """The type in which Keras passes an array on: floats in its own float type, all else as it is."""
    return np.dtype(keras.config.floatx()) if array.dtype.kind == "f" else array.dtype


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


# Arguments of Keras' verbs --------------------------------------------------------------------------------------------


def _fit_arguments(arguments: dict[str, Any], keep: Callable[[Rows], None]) -> dict[str, Any]:
    arguments = validated_apart({"shuffle": True, **arguments})
    if arguments.get("validation_split") and arguments.get("validation_data") is None:
        return arguments  # not large, or to be refused by Keras
    class_weight = arguments.get("class_weight")
    if class_weight is not None and _can_be_cut(arguments):
        if arguments.get("sample_weight") is not None or keras.tree.is_nested(arguments["y"]):
            return arguments  # Keras says why not
        arguments["sample_weight"] = row_weights(arguments["y"], arguments.pop("class_weight"))
    validation = arguments.get("validation_data")
    if isinstance(validation, tuple | list):
        size = arguments.get("validation_batch_size") or arguments.get("batch_size")
        named = dict(zip(("x", "y", "sample_weight"), validation, strict=False))
        cut = _as_batches({**named, "batch_size": size}, False, arguments.get("validation_steps"), keep)
        if isinstance(cut["x"], tf.data.Dataset):
            arguments["validation_data"] = cut["x"]
    return _as_batches(arguments, arguments["shuffle"], arguments.get("steps_per_epoch"), keep)


def _as_batches(
    arguments: dict[str, Any], shuffle: bool | str, steps: int | None, keep: Callable[[Rows], None]
) -> dict[str, Any]:
    """The arguments with a dataset in place of large arrays; others are left to Keras."""
    if not _can_be_cut(arguments):
        return arguments
    x, y, weight = _data(arguments)
    if weight is not None and keras.tree.is_nested(y) and not keras.tree.is_nested(weight):
        weight = keras.tree.map_structure(lambda _: weight, y)  # one weight per row goes for all outputs
    rows = len(keras.tree.flatten(x)[0])
    size = arguments.get("batch_size") or (math.ceil(rows / steps) if steps else 32)
    dataset, cut = batches(x, y, weight, size, shuffle)
    keep(cut)
    in_dataset = {"y": None, "sample_weight": None, "shuffle": False}
    return {**arguments, **{name: value for name, value in in_dataset.items() if name in arguments}, "x": dataset}


def validated_apart(arguments: dict[str, Any], large: bool = True) -> dict[str, Any]:
    """The arguments with the last rows as validation data, where `validation_split` asks for it."""
    split = arguments.get("validation_split")
    can_be_cut = _can_be_cut(arguments) if large else are_arrays(arguments)
    if not split or arguments.get("validation_data") is not None or not can_be_cut:
        return arguments
    rows = len(keras.tree.flatten(arguments["x"])[0])
    at = math.floor(rows * (1.0 - split))
    if not 0 < at < rows:
        return arguments
    data = _data(arguments)
    first = keras.tree.map_structure(lambda array: None if array is None else array[:at], data)
    last = keras.tree.map_structure(lambda array: None if array is None else array[at:], data)
    named = dict(zip(("x", "y", "sample_weight"), first, strict=True))
    return {**arguments, **named, "validation_data": last, "validation_split": 0.0}


def _can_be_cut(arguments: dict[str, Any]) -> bool:
    """Whether the data are numeric arrays with the same number of rows, and large."""
    arrays = keras.tree.flatten(_data(arguments))
    copied = [array for array in arrays if isinstance(array, np.ndarray) and _would_be_copied(array)]
    return are_arrays(arguments) and sum(array.nbytes for array in copied) >= LARGE


def are_arrays(arguments: dict[str, Any]) -> bool:
    """Whether the data are numeric arrays with the same number of rows."""
    arrays = [array for array in keras.tree.flatten(_data(arguments)) if array is not None]
    if not arrays or not all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays):
        return False
    return all(array.ndim > 0 for array in arrays) and len({len(array) for array in arrays}) == 1 and len(arrays[0]) > 0


def _would_be_copied(array: np.ndarray) -> bool:
    return kept_type(array) != array.dtype or not array.flags.c_contiguous


def _data(arguments: dict[str, Any]) -> tuple[Any, Any, Any]:
    return arguments.get("x"), arguments.get("y"), arguments.get("sample_weight")


def row_weights(y: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """The weight of each row: that of its class, or 1."""
    classes = y if y.ndim == 1 else y[..., 0] if y.shape[-1] == 1 else np.argmax(y, axis=-1)
    weights = [class_weight.get(int(each), 1.0) for each in np.round(classes)]
    return np.asarray(weights, keras.config.floatx())


@contextmanager
def released() -> Iterator[Callable[[Rows], None]]:
    """Releases, in the end, all rows that it was given."""
    kept: list[Rows] = []
    try:
        yield kept.append
    finally:
        for rows in kept:
            rows.release()
