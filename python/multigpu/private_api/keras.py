"""The template: its layers, how it was compiled, and what its outputs have to be."""

from typing import Any

import keras
import tensorflow as tf


def sublayers(model: keras.Layer) -> list[keras.Layer]:
    """All layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def kept_by_keras(model: keras.Layer) -> set[int]:
    """Ids of the variables of layers whose `call` is Keras' own, as opposed to what somebody wrote."""
    layer_of: dict[int, keras.Layer] = {}
    for layer in [model, *sublayers(model)]:
        layer_of.update((id(variable), layer) for variable in layer.weights)  # inner layers come later and win
    return {number for number, layer in layer_of.items() if type(layer).call.__module__.startswith("keras.")}


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """The arguments with which a model was compiled, the very objects."""
    return dict(model._compile_config.config)  # the public `get_compile_config()` gives copies


def restore_compile_arguments(model: keras.Model, arguments: dict[str, Any]) -> None:
    """Gives a model the arguments back with which it was compiled, without compiling it anew."""
    model._compile_config.config.update(arguments)


def wants_jit(model: keras.Layer) -> bool:
    """Whether a model was compiled for XLA, with "auto" resolved as Keras does, and all of its layers allow it."""
    supported = all(layer.supports_jit for layer in [model, *sublayers(model)])
    return bool(getattr(model, "compiled", False) and compile_arguments(model)["jit_compile"] and supported)


def output_names(model: keras.Model) -> list[str]:
    """Names of the outputs of a model that was built from symbolic tensors, in order: of the layers that make them."""
    if isinstance(model, keras.Sequential):  # which has no such list, but one output
        return [model.layers[-1].name]
    return model.output_names


def mask_of(x: object) -> tf.Tensor | None:
    """The mask that Keras attached to `x`. Keras has no public way to ask; a test tells if the attribute changes."""
    return getattr(x, "_keras_mask", None)


def with_mask(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """`x`, masked: Keras' losses and layers see the mask."""
    if mask is not None:
        x._keras_mask = mask
    return x


def backing_variable(variable: keras.Variable) -> tf.Variable:
    """The TensorFlow variable in which a Keras variable is stored. Its `value` may be another: cast, or in a scope."""
    return variable._value  # Keras has no public way to ask for it


def is_placed(layer: keras.Operation) -> bool:
    """Whether any symbolic call of this layer is to run on a device."""
    return any(hasattr(node, "placed") for node in layer._inbound_nodes)
