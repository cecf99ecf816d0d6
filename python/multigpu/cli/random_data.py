"""Make random inputs for a model without data, and targets that its losses accept."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.private_api.layers import inputs_of, sublayers
from multigpu.profiling.measure import MOST_STEPS

OF_CLASSES = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")  # losses that need integers
OF_OTHER_SHAPES = ("ctc", "circle")  # losses for which the outputs do not determine the shape of the targets
CROSSENTROPY = ("crossentropy", "ce")  # `compile()` chooses one of several by the shape of the output
IN_PYTHON = "Measure it in Python, with data: `multigpu.measure(parallel, x, y)`."


class RandomBatch(keras.utils.PyDataset):
    """One random batch in memory, returned again and again.

    Attributes:
        words: a description of the batch.
    """

    def __init__(self, x: Any, y: Any, words: str) -> None:
        super().__init__()
        self._batch = (x,) if y is None else (x, y)
        self.words = words

    def __len__(self) -> int:
        return MOST_STEPS + 1

    def __getitem__(self, number: int) -> Any:
        return self._batch


def random_batch(model: keras.Model, rows: int, open_length: int, below: int | None) -> RandomBatch:
    """Return a batch of random data that a compiled model accepts.

    Args:
        model: the compiled model.
        rows: the number of rows.
        open_length: the length of axes whose length depends on the data.
        below: whole numbers are drawn from 1 up to here, because 0 often means a masked value; or they are 0 if this is
            1. None uses the number of rows of the smallest embedding table, or 1 if there is no table.

    Raises:
        ValueError: the shapes of the model's inputs are unknown, an input is not of plain numbers, or the targets of a
            loss cannot be determined.
    """
    specs = inputs_of(model, rows, open_length)
    if specs is None:
        raise refuse(
            "a model with known input shapes, so that random rows can be drawn",
            f"{model.name!r}, whose input shapes are unknown",
            IN_PYTHON,
        )
    for given in model.inputs:
        _check_plain(given, model)
    tables = [layer.input_dim for layer in sublayers(model) if isinstance(layer, keras.layers.Embedding)]
    limit = below or min(tables, default=1)
    generator = np.random.default_rng(0)
    x = keras.tree.map_structure(lambda spec: _draw(spec, limit, generator), specs)
    words = [f"{rows:,} random rows"]
    if any(keras.backend.is_int_dtype(spec.dtype) for spec in keras.tree.flatten(specs)):
        words.append(f"whole numbers from {min(1, limit - 1)} to {limit - 1:,}")
    if any(None in given.shape[1:] for given in model.inputs):
        words.append(f"axes of open length are {open_length:,} long")
    return RandomBatch(x, _targets(model, x, generator), ", ".join(words))


def _check_plain(given: keras.KerasTensor, model: keras.Model) -> None:
    kind = "sparse" if given.sparse else "ragged" if given.ragged else given.dtype
    if kind in ("sparse", "ragged", "string"):
        raise refuse(
            "inputs of plain numbers, to draw random rows",
            f"the input {given.name!r} of {model.name!r}, which is {kind}",
            IN_PYTHON,
        )


def _draw(spec: keras.KerasTensor, below: int, generator: np.random.Generator) -> np.ndarray:
    if keras.backend.is_int_dtype(spec.dtype):
        return generator.integers(min(1, below - 1), below, spec.shape).astype(spec.dtype)
    return generator.random(spec.shape, "float32").astype(spec.dtype)


def _targets(model: keras.Model, x: Any, generator: np.random.Generator) -> Any:
    """Return targets of the shapes that the losses need. None if the only losses are those that layers add."""
    if model.loss is None:
        return None
    outputs = model(keras.tree.map_structure(lambda numbers: numbers[:1], x), training=False)
    rows = len(keras.tree.flatten(x)[0])
    each = zip(keras.tree.flatten(outputs), _losses_of(model, outputs), strict=True)
    targets = [_target((rows, *output.shape[1:]), loss, generator) for output, loss in each]
    return keras.tree.pack_sequence_as(outputs, targets)


def _losses_of(model: keras.Model, outputs: Any) -> Sequence[Any]:
    """Return the loss of each output."""
    loss, number = model.loss, len(keras.tree.flatten(outputs))
    if isinstance(loss, dict):
        names = (
            keras.tree.flatten({name: name for name in outputs}) if isinstance(outputs, dict) else model.output_names
        )
        loss = [loss.get(name) for name in names]
    losses = loss if isinstance(loss, list | tuple) else [loss] * number
    if len(losses) != number or any(isinstance(each, dict | list | tuple) for each in losses):
        raise refuse(f"one loss, or one for each of {number} outputs", f"loss={shown(loss)}", f"{IN_PYTHON}")
    return losses


def _target(shape: Sequence[int], loss: Any, generator: np.random.Generator) -> np.ndarray:
    name = _name_of(loss)
    if name in OF_CLASSES:
        return np.zeros(shape[:-1], "int32")
    return generator.random(shape, "float32")


def _name_of(loss: Any) -> str | None:
    """Return the name that a loss of Keras has as a function."""
    if loss is None or loss in CROSSENTROPY:
        return None
    known = keras.losses.get(loss)
    function = getattr(known, "fn", known)
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(keras.losses, name, None) is not function or name in OF_OTHER_SHAPES:
        raise refuse(
            "losses of Keras whose targets have the shape of the outputs, or are numbers of classes",
            f"{name!r}",
            IN_PYTHON,
        )
    return name
