"""A model out of the configuration in an HDF5 file: without code from the file, and no larger than its weights."""

import json
import math
from typing import Any

import keras
import tensorflow as tf

# Keras has no public way to read such a configuration other than to let it read the file.
from keras.src.legacy.saving import json_utils, saving_options, saving_utils
from keras.src.saving.serialization_lib import SafeModeScope

CODE = {"Lambda", "__lambda__"}
SPARE_ELEMENTS = 1 << 16  # for seeds and counters, which such files leave out


def model_from_legacy_config(
    config: dict[str, Any], custom_objects: dict[str, Any] | None, safe_mode: bool, num_elements: int
) -> keras.Model:
    """Builds a model.

    Args:
        config: the configuration of the model, as JSON has it.
        custom_objects: classes and functions of the caller, by name.
        safe_mode: whether to refuse a model that runs code from the file.
        num_elements: how many numbers the file has as weights. A model that wants more is not built: its configuration
            may ask for any amount of memory.

    Raises:
        ValueError: the model cannot be built, is too large, or holds code.
    """
    if safe_mode and holds_code(config):
        raise ValueError(
            "Expected a model without code in its file. Received one with a Lambda layer, whose code would be run. If "
            "you trust the file, pass `safe_mode=False`."
        )
    scopes = saving_options.keras_option_scope(use_legacy_config=True), SafeModeScope(safe_mode)
    objects = keras.saving.custom_object_scope(custom_objects or {})
    try:
        with scopes[0], scopes[1], objects, _variables_of_at_most(num_elements + SPARE_ELEMENTS):
            decoded = json_utils.decode(json.dumps(with_input_layers(config)))
            return saving_utils.model_from_config(decoded, custom_objects=keras.saving.get_custom_objects())
    except Exception as error:
        raise ValueError(
            f"Expected a model that Keras can build. Received one that it cannot: {error} Classes and functions of "
            "your own are passed as `custom_objects={name: object}`."
        ) from error


def holds_code(config: Any) -> bool:
    """Whether code would be read out of a configuration: that of a Lambda layer or a lambda function."""
    if isinstance(config, dict):
        return config.get("class_name") in CODE or any(map(holds_code, config.values()))
    return isinstance(config, list) and any(map(holds_code, config))


def with_input_layers(config: Any) -> Any:
    """The configuration with the input of each Sequential in a layer of its own: Keras 2 had it in the first layer."""
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


def _variables_of_at_most(num_elements: int) -> Any:
    """Refuses to make variables that are larger in total, before their memory is taken."""
    left = num_elements

    def make(next_creator: Any, **arguments: Any) -> tf.Variable:
        nonlocal left
        value = arguments["initial_value"]
        if callable(value):
            with tf.Graph().as_default():  # where a value is only described
                value = tf.convert_to_tensor(value())
        left -= math.prod(value.shape)
        if left < 0:
            raise ValueError(f"it wants more than the {num_elements:,} numbers that the file has as weights.")
        return next_creator(**arguments)

    return tf.variable_creator_scope(make)
