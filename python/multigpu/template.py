"""The template: its layers, how it was compiled, and what its outputs have to be."""

from collections.abc import Iterable
from typing import Any

import keras

from multigpu.arguments import shown


def sublayers(model: keras.Layer) -> list[keras.Layer]:
    """All layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def kept_by_keras(model: keras.Layer) -> set[int]:
    """Ids of the variables of layers whose `call` is Keras' own, as opposed to what somebody wrote."""
    layer_of: dict[int, keras.Layer] = {}
    for layer in [model, *sublayers(model)]:
        layer_of.update((id(variable), layer) for variable in layer.weights)  # inner layers come later and win
    return {number for number, layer in layer_of.items() if type(layer).call.__module__.startswith("keras.")}


def check_model(name: str, model: object) -> None:
    """Refuses what is no model of Keras 3.

    Args:
        name: of the argument.
        model: its value.
    """
    if isinstance(model, keras.Model):
        return
    if any(cls.__module__.startswith("tf_keras") for cls in type(model).__mro__):
        raise ValueError(
            f"Expected `{name}` to be a Keras 3 model. Received: {type(model).__name__} from `tf_keras`, which is "
            "Keras 2. Build the model with `import keras` (and unset TF_USE_LEGACY_KERAS if `tf.keras` is used)."
        )
    raise ValueError(
        f"Expected `{name}` to be a Keras model. Received: {shown(model)} of type {type(model).__name__}. "
        "Pass a built `keras.Sequential`, functional or subclassed `keras.Model`."
    )


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


def no_batch_axis(name: str, shape: Iterable[int | None]) -> str:
    """The message for an output that cannot be merged."""
    return (
        "Expected every output of the template to have a batch axis, so that the slices of the replicas can be merged. "
        f"Received: output {name!r} with shape {tuple(shape)}. Return one value per row, for instance a loss of shape "
        "(batch,), or move the reduction into a loss function or into `add_loss()`."
    )
