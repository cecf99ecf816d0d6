"""What layers told of themselves: the shapes of their inputs and outputs, and the input and output of a Sequential."""

from collections.abc import Callable
from typing import Any

import keras


class Property:
    """A property that an attribute of the same name hides, because layers of a script may set it."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else self._read(layer)


def restore() -> None:
    """Give layers and Sequential models these properties."""
    keras.Layer.input_shape = Property(lambda layer: _shape(layer.input))
    keras.Layer.output_shape = Property(lambda layer: _shape(layer.output))
    for name in ("input", "output"):
        setattr(keras.Sequential, name, property(_first(name, getattr(keras.Sequential, name).fget)))


def _shape(tensors: Any) -> Any:
    return keras.tree.map_structure(lambda x: tuple(x.shape), tensors)


def _first(name: str, stock: Callable) -> Callable:
    return lambda model: getattr(model, f"{name}s")[0] if model.built and model.inputs else stock(model)
