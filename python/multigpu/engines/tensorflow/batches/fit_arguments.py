"""Replace large arrays by batches in the arguments of Keras' methods."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.arrays import kept_type, row_weights
from multigpu.engines.tensorflow.batches.array_source import batches

LARGE = 2**26  # number of bytes from which on this package avoids Keras' copy of the arrays


@contextlib.contextmanager
def fit_arguments(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the arguments of a model's `fit`, with batches in place of large arrays, for a `with` block."""
    with contextlib.ExitStack() as at_end:
        yield _fit_arguments(arguments, at_end)


@contextlib.contextmanager
def arguments_with_batches(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the same for a model's `evaluate` or `predict`."""
    with contextlib.ExitStack() as at_end:
        yield _as_batches(arguments, False, arguments.get("steps"), at_end)


def _fit_arguments(arguments: dict[str, Any], at_end: contextlib.ExitStack) -> dict[str, Any]:
    arguments = validated_apart({"shuffle": True, **arguments})
    if arguments.get("validation_split") and arguments.get("validation_data") is None:
        return arguments  # not large, or invalid for Keras
    class_weight = arguments.get("class_weight")
    if class_weight is not None and _can_be_cut(arguments):
        if arguments.get("sample_weight") is not None or keras.tree.is_nested(arguments["y"]):
            return arguments  # Keras raises the error
        arguments["sample_weight"] = row_weights(arguments["y"], arguments.pop("class_weight"))
    validation = arguments.get("validation_data")
    if isinstance(validation, tuple | list):
        size = arguments.get("validation_batch_size") or arguments.get("batch_size")
        named = dict(zip(("x", "y", "sample_weight"), validation, strict=False))
        cut = _as_batches({**named, "batch_size": size}, False, arguments.get("validation_steps"), at_end)
        if isinstance(cut["x"], tf.data.Dataset):
            arguments["validation_data"] = cut["x"]
    return _as_batches(arguments, arguments["shuffle"], arguments.get("steps_per_epoch"), at_end)


def _as_batches(
    arguments: dict[str, Any], shuffle: bool | str, steps: int | None, at_end: contextlib.ExitStack
) -> dict[str, Any]:
    """Return the arguments with a dataset in place of large arrays. Other arguments are left to Keras."""
    if not _can_be_cut(arguments):
        return arguments
    x, y, weight = _data(arguments)
    if weight is not None and keras.tree.is_nested(y) and not keras.tree.is_nested(weight):
        weight = keras.tree.map_structure(lambda _: weight, y)  # one weight per row applies to all outputs
    rows = _num_rows(x)
    size = arguments.get("batch_size") or (math.ceil(rows / steps) if steps else 32)
    dataset, cut = batches(x, y, weight, size, shuffle)
    at_end.callback(cut.release)
    in_dataset = {"y": None, "sample_weight": None, "shuffle": False}
    return {**arguments, **{name: value for name, value in in_dataset.items() if name in arguments}, "x": dataset}


def validated_apart(arguments: dict[str, Any], large: bool = True) -> dict[str, Any]:
    """Return the arguments with the last rows as validation data, if `validation_split` asks for it."""
    split = arguments.get("validation_split")
    if split and not large:
        arguments = {**arguments, **{name: _as_arrays(arguments.get(name)) for name in ("x", "y", "sample_weight")}}
    can_be_cut = _can_be_cut(arguments) if large else are_arrays(arguments)
    if not split or arguments.get("validation_data") is not None or not can_be_cut:
        return arguments
    rows = _num_rows(arguments["x"])
    at = math.floor(rows * (1.0 - split))
    if not 0 < at < rows:
        return arguments
    data = _data(arguments)
    first = keras.tree.map_structure(lambda array: None if array is None else array[:at], data)
    last = keras.tree.map_structure(lambda array: None if array is None else array[at:], data)
    named = dict(zip(("x", "y", "sample_weight"), first, strict=True))
    return {**arguments, **named, "validation_data": last, "validation_split": 0.0}


def _as_arrays(data: Any) -> Any:
    """Return tensors as arrays."""
    return keras.tree.map_structure(lambda x: x.numpy() if isinstance(x, tf.Tensor) else x, data)


def _num_rows(x: Any) -> int:
    return next(len(array) for array in keras.tree.flatten(x) if array is not None)  # an input may be optional


def _can_be_cut(arguments: dict[str, Any]) -> bool:
    """Return whether the data are numeric arrays with the same number of rows, and large."""
    arrays = keras.tree.flatten(_data(arguments))
    copied = [array for array in arrays if isinstance(array, np.ndarray) and _would_be_copied(array)]
    return are_arrays(arguments) and sum(array.nbytes for array in copied) >= LARGE


def are_arrays(arguments: dict[str, Any]) -> bool:
    """Return whether the data are numeric arrays with the same number of rows."""
    arrays = [array for array in keras.tree.flatten(_data(arguments)) if array is not None]
    if not arrays or not all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays):
        return False
    return all(array.ndim > 0 for array in arrays) and len({len(array) for array in arrays}) == 1 and len(arrays[0]) > 0


def _would_be_copied(array: np.ndarray) -> bool:
    return kept_type(array) != array.dtype or not array.flags.c_contiguous


def _data(arguments: dict[str, Any]) -> tuple[Any, Any, Any]:
    return arguments.get("x"), arguments.get("y"), arguments.get("sample_weight")
