"""Build a model from the configuration in an HDF5 file, no larger than the file's weights."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import keras

from multigpu.private_api.serialization import model_from_config_of_keras2, operations
from multigpu.saving.allowed_objects import callers_objects
from multigpu.saving.variable_limit import variables_of_at_most

OPERATION = "operation>"  # precedes the name of an operation, which may be the name of a layer, too
SPARE_ELEMENTS = 1 << 16  # for seeds and counters, which such files do not contain


def model_from_legacy_config(config: dict[str, Any], num_elements: int | None = None) -> keras.Model:
    """Return a model built from objects that the surrounding scopes allow.

    Args:
        config: the configuration of the model, as read from JSON.
        num_elements: the number of elements of the weights in the file. A larger model is not built, because its
            configuration could require any amount of memory. None if the file is trusted.
    """
    limited = nullcontext() if num_elements is None else variables_of_at_most(num_elements + SPARE_ELEMENTS)
    with limited:
        decoded = json.loads(json.dumps(with_input_layers(config)), object_hook=_decoded)
        named = {f"{OPERATION}{name}": kind for name, kind in operations().items()}
        return model_from_config_of_keras2(decoded, {**named, **callers_objects(None)})


def _decoded(value: Mapping[str, Any]) -> Any:
    """Return a value that Keras wrote with a marker, because JSON has no type for it."""
    match value.get("class_name"):
        case name if _is_operation(value):
            return {**value, "class_name": f"{OPERATION}{name}"}
        case "__tuple__":
            return tuple(value["items"])
        case "TensorShape":
            return value["items"]
        case "__ellipsis__":
            return ...
        case "__bytes__" if "value" in value:
            return value["value"].encode()
        case "TypeSpec" | "CompositeTensor":
            raise ValueError("it holds types of TensorFlow, which no layer of Keras 3 has.")
    return value


def _is_operation(called: Mapping[str, Any]) -> bool:
    """Return whether a functional model called an operation, as for the mask of an Embedding, and not a layer.

    Some operations have the name of a layer, such as Add. But every layer's configuration has `trainable`.
    """
    config, name = called.get("config"), called.get("class_name")
    if "inbound_nodes" not in called or not isinstance(config, dict) or not isinstance(name, str):
        return False
    return name in operations() and "trainable" not in config and name not in callers_objects(None)


def with_input_layers(config: Any) -> Any:
    """Return the configuration with a layer for the input of each Sequential. Keras 2 had it in the first layer."""
    if isinstance(config, list):
        return [with_input_layers(each) for each in config]
    if not isinstance(config, dict):
        return config
    config = {name: with_input_layers(each) for name, each in config.items()}
    if config.get("class_name") != "Sequential":
        return config
    inner = config["config"] if isinstance(config.get("config"), dict) else {"layers": config.get("config")}
    layers = inner.get("layers")
    if not isinstance(layers, list) or not all(isinstance(each, dict) for each in layers):
        return config
    shapes = [
        _own_config(each).pop("batch_input_shape", None) for each in layers if each.get("class_name") != "InputLayer"
    ]
    if len(shapes) == len(layers) and shapes and shapes[0] is not None:
        shape, dtype = shapes[0], _own_config(layers[0]).get("dtype", "float32")
        layers = [{"class_name": "InputLayer", "config": {"batch_input_shape": shape, "dtype": dtype}}, *layers]
    return {**config, "config": {**inner, "layers": layers}}


def _own_config(layer: dict[str, Any]) -> dict[str, Any]:
    return layer["config"] if isinstance(layer.get("config"), dict) else {}
