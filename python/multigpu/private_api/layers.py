"""Attributes of layers and models that Keras has no public access to."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras

from multigpu.base.replaced import replaced


def sublayers(model: keras.Layer) -> list[keras.Layer]:
    """All layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def is_of_keras(kind: type) -> bool:
    """Return whether a class was written by Keras, and not by its user: only the name of its module tells."""
    return kind.__module__.startswith("keras.")


def runs_code_of_keras(layer: keras.Layer) -> bool:
    """Return whether what a layer does is Keras' own, as opposed to what somebody wrote."""
    return type(layer).call.__module__.startswith("keras.") and not isinstance(layer, keras.layers.Lambda)


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """The arguments with which a model was compiled, the very objects: the public `get_compile_config()` copies."""
    return dict(model._compile_config.config)


def compilation(model: keras.Model) -> object:
    """Return an object that differs between two `compile()` calls of a model; None before the first."""
    return getattr(model, "_compile_config", None)


def restore_compile_arguments(model: keras.Model, arguments: dict[str, Any]) -> None:
    """Gives a model the arguments back with which it was compiled, without compiling it anew."""
    model._compile_config.config.update(arguments)


def wants_jit(model: keras.Layer) -> bool:
    """Whether a model was compiled for XLA, with "auto" resolved as Keras does, and all of its layers allow it."""
    supported = all(layer.supports_jit for layer in [model, *sublayers(model)])
    return bool(getattr(model, "compiled", False) and compile_arguments(model)["jit_compile"] and supported)


def show_input(model: keras.Model, sequential: keras.Sequential) -> None:
    """Puts the input of a Sequential first in another model's list of layers: `clone_model()` looks for it there."""
    model._layers.insert(0, sequential._layers[0])


def moments_from(layer: keras.layers.BatchNormalization, moments: Callable[..., Any]) -> AbstractContextManager[None]:
    """While it lasts, the layer asks `moments` for mean and variance: it has no seam before its use of them."""
    return replaced(layer, "_moments", moments)


def epoch_of_backup(model: keras.Model) -> int:
    """The epoch in which BackupAndRestore goes on: it hands the epoch to Keras in this attribute, and nowhere else."""
    return model._initial_epoch or 0


def set_epoch_of_backup(model: keras.Model, epoch: int) -> None:
    """Has the training that begins go on in this epoch."""
    model._initial_epoch = epoch or None


def batch_normalizations(model: keras.Layer) -> list[keras.layers.BatchNormalization]:
    """The BatchNormalizations of a model, at any depth."""
    return [layer for layer in sublayers(model) if isinstance(layer, keras.layers.BatchNormalization)]


def is_fixed(tensor: keras.KerasTensor) -> bool:
    """Return whether an input is for so many rows alone."""
    return bool(tensor.shape) and tensor.shape[0] is not None


def symbolic(model: keras.Model, side: str) -> list[keras.KerasTensor]:
    """Inputs or outputs of a model that was built from symbolic tensors; a subclassed one has none."""
    return keras.tree.flatten(getattr(model, side, None) or [])


def inputs_of(model: keras.Model, rows: int, open_length: int) -> Any:
    """Return a model's inputs for a number of rows; None if unknown. Axes of unknown length get one."""
    flat = symbolic(model, "inputs")
    if not flat:
        return None
    tensors = [keras.KerasTensor((rows, *(n or open_length for n in x.shape[1:])), x.dtype) for x in flat]
    return tensors[0] if isinstance(model, keras.Sequential) else keras.tree.pack_sequence_as(model.input, tensors)
