"""Random inputs and targets for a model, told by names, types and shapes of what it takes and gives."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

Given = Mapping[str, Callable[[int], np.ndarray]]


def inputs_of(model: keras.Model, rows: int, length: int, side: int, below: int, given: Given) -> Any:
    """What the model takes.

    Args:
        model: made of symbolic tensors.
        rows: how many.
        length: of texts.
        side: of images.
        below: what ids of texts are below.
        given: makes some inputs, by name.
    """
    random = np.random.default_rng(0)

    def one(x: keras.KerasTensor) -> np.ndarray:
        if x.name in given:
            return given[x.name](rows)
        shape = (rows, *_sizes(x.shape[1:], length, side))
        if x.name.endswith("mask"):  # right-padded, of several lengths
            lengths = shape[-1] - np.arange(rows).reshape(-1, *[1] * (len(shape) - 1)) % 3
            return np.broadcast_to(np.arange(shape[-1]) < lengths, shape).astype(x.dtype)
        if "int" in x.dtype:
            largest = {"segment_ids": 2, "mask_positions": length}.get(x.name, below)
            return random.integers(0, largest, shape).astype(x.dtype)
        return random.uniform(0, 1, shape).astype(x.dtype)

    return keras.tree.map_structure(one, model.input)


def targets_for(outputs: Any) -> Any:
    """Numbers that a squared error compares with the outputs; None for what is not a number.

    There is one for each row, also for an output that no row reaches.
    """
    random, rows = np.random.default_rng(1), max(map(len, keras.tree.flatten(outputs)))

    def one(x: np.ndarray) -> np.ndarray | None:
        return random.uniform(-1, 1, (rows, *x.shape[1:])).astype("float32") if x.dtype.kind == "f" else None

    return keras.tree.map_structure(one, outputs)


def classes_for(outputs: np.ndarray) -> np.ndarray:
    """Classes for outputs that are logits of them."""
    return np.random.default_rng(1).integers(0, outputs.shape[-1], outputs.shape[:-1])


def _sizes(shape: tuple[int | None, ...], length: int, side: int) -> tuple[int, ...]:
    """The shape of one row: an image, several images, a text with or without features."""
    sides = (side, side, 3)
    if len(shape) >= 3 and shape[-1] == 3:
        open_axes = (*[1] * (len(shape) - 3), *sides)
    else:
        open_axes = (length, *[1] * (len(shape) - 1))[: len(shape)]
    return tuple(size or other for size, other in zip(shape, open_axes, strict=True))
