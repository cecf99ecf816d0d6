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
            decoded = json_utils.decode(json.dumps(config))
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


def _variables_of_at_most(num_elements: int) -> Any:
    """Refuses to make variables that are larger in total, before their memory is taken."""
    left = num_elements

    def make(next_creator: Any, **arguments: Any) -> tf.Variable:
        nonlocal left
        left -= math.prod(arguments.get("shape") or ())
        if left < 0:
            raise ValueError(f"it wants more than the {num_elements:,} numbers that the file has as weights.")
        return next_creator(**arguments)

    return tf.variable_creator_scope(make)
