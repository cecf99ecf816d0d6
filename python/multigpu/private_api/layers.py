"""Attributes of layers and models that Keras does not give public access to."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras

from multigpu.base.replaced import replaced


def sublayers(model: keras.Layer) -> list[keras.Layer]:
    """Return all layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Return the variables of a model and of its optimizers."""
    return [*model.variables, *(variable for optimizer in optimizers_of(model) for variable in optimizer.variables)]


def optimizers_of(model: keras.Model) -> list[keras.Optimizer]:
    """Return all optimizers that a model has, also those in attributes of its own, or in a list or dictionary there."""
    found: list[Any] = []
    for held in (getattr(model, "optimizer", None), *vars(model).values()):
        found.extend(held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else [held])
    return list({id(each): each for each in found if isinstance(each, keras.Optimizer)}.values())


def output_names(model: keras.Model) -> list[str]:
    """Return the output names of a model that was built from symbolic tensors, in order: its last layers."""
    if isinstance(model, keras.Sequential):  # has no such list, but one output
        return [model.layers[-1].name]
    return model.output_names


def finish_state(model: keras.Layer) -> None:
    """Make layers compute what they derive from their weights, such as the tensors of an adapted Normalization.

    Keras does so when it loads a file, and not when a variable is assigned.
    """
    for layer in (model, *sublayers(model)):
        if layer.weights and hasattr(layer, "finalize_state"):
            layer.finalize_state()


def is_of_keras(kind: type) -> bool:
    """Return whether Keras, not its user, wrote a class. Only the name of its module tells."""
    return kind.__module__.startswith("keras.")


def runs_code_of_keras(layer: keras.Layer) -> bool:
    """Return whether a layer runs only Keras' own code."""
    return type(layer).call.__module__.startswith("keras.") and not isinstance(layer, keras.layers.Lambda)


def updated_by_keras(metric: keras.Metric) -> bool:
    """Return whether Keras' own code updates a metric."""
    return type(metric).update_state.__module__.startswith("keras.")


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the arguments of a model's last `compile()`: the same objects, not copies as `get_compile_config()`."""
    return dict(model._compile_config.config)


def compilation(model: keras.Model) -> object:
    """Return an object that is different after each `compile()` of a model. None before the first."""
    return getattr(model, "_compile_config", None)


def restore_compile_arguments(model: keras.Model, arguments: dict[str, Any]) -> None:
    """Give a model back its compile arguments, without compiling it again."""
    model._compile_config.config.update(arguments)


def wants_jit(model: keras.Layer) -> bool:
    """Return whether a model is compiled for XLA, with "auto" resolved as Keras does, and all layers allow it."""
    supported = all(layer.supports_jit for layer in [model, *sublayers(model)])
    return bool(getattr(model, "compiled", False) and compile_arguments(model)["jit_compile"] and supported)


def show_input(model: keras.Model, sequential: keras.Sequential) -> None:
    """Put the input of a Sequential first in another model's list of layers, where `clone_model()` looks for it."""
    model._layers.insert(0, sequential._layers[0])


def moments_from(layer: keras.layers.BatchNormalization, moments: Callable[..., Any]) -> AbstractContextManager[None]:
    """Make a layer take mean and variance from `moments` inside a `with` block. It has no public way for this."""
    return replaced(layer, "_moments", moments)


def epoch_of_backup(model: keras.Model) -> int:
    """Return the epoch from which BackupAndRestore resumes. It passes the epoch to Keras in this attribute only."""
    return model._initial_epoch or 0


def set_epoch_of_backup(model: keras.Model, epoch: int) -> None:
    """Make the training that begins resume at this epoch."""
    model._initial_epoch = epoch or None


def batch_normalizations(model: keras.Layer) -> list[keras.layers.BatchNormalization]:
    """Return the BatchNormalization layers of a model, at any depth."""
    return [layer for layer in sublayers(model) if isinstance(layer, keras.layers.BatchNormalization)]


def is_fixed(tensor: keras.KerasTensor) -> bool:
    """Return whether an input accepts only one number of rows."""
    return bool(tensor.shape) and tensor.shape[0] is not None


def symbolic(model: keras.Model, side: str) -> list[keras.KerasTensor]:
    """Return the inputs or outputs of a model that was built from symbolic tensors. None for a subclassed model."""
    return keras.tree.flatten(getattr(model, side, None) or [])


def inputs_of(model: keras.Model, rows: int | None, open_length: int | None = None) -> Any:
    """Return a model's inputs for a number of rows. None if unknown. Axes of open length get this one."""
    flat = symbolic(model, "inputs")
    if not flat:
        return None
    shapes = [(rows, *(open_length if n is None else n for n in x.shape[1:])) for x in flat]
    tensors = [
        keras.KerasTensor(shape, x.dtype, sparse=x.sparse, ragged=x.ragged, name=x.name)
        for shape, x in zip(shapes, flat, strict=True)
    ]
    return tensors[0] if isinstance(model, keras.Sequential) else keras.tree.pack_sequence_as(model.input, tensors)
