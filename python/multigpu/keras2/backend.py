"""Functions of `keras.backend` that `tf.keras.backend` lacks, or has only for other variables than Keras 3's."""

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from multigpu.keras2.modules import put_name
from multigpu.keras2.tf1_sessions import Session, set_session
from multigpu.model.devices import available_gpus


def restore() -> None:
    """Add these functions to `keras.backend`."""
    functions = [set_value, get_value, batch_set_value, batch_get_value, count_params, function, set_session]
    functions += [_get_available_gpus, image_dim_ordering, set_image_dim_ordering]
    for each in functions:
        put_name("backend", each.__name__, each)
    put_name("backend", "get_session", Session)
    put_name("backend", "tf", importlib.import_module("tensorflow"))
    put_name("utils.test_utils", "keras_test", keras_test)
    for module in ("utils.multi_gpu_utils", "utils.training_utils"):
        put_name(module, "_get_available_devices", _get_available_devices)
        put_name(module, "_normalize_device_name", _normalize_device_name)


def set_value(x: Any, value: Any) -> None:
    """Assign a value to a variable."""
    x.assign(value)


def get_value(x: Any) -> Any:
    """Return the value of a variable as an array."""
    return np.asarray(x)[()]


def batch_set_value(tuples: Sequence[tuple[Any, Any]]) -> None:
    """Assign values to variables."""
    for x, value in tuples:
        set_value(x, value)


def batch_get_value(tensors: Sequence[Any]) -> list[Any]:
    """Return the values of variables as arrays."""
    return [get_value(x) for x in tensors]


def count_params(x: Any) -> int:
    """Return the number of elements of a variable."""
    return math.prod(x.shape)


def function(inputs: Sequence[Any], outputs: Sequence[Any], updates: Any = None) -> Callable:
    """Return a function from arrays to arrays, made from symbolic tensors of a model."""
    model = keras.Model(list(inputs), list(outputs))
    return lambda values: [np.asarray(output) for output in keras.tree.flatten(model(list(values), training=False))]


def _get_available_gpus() -> list[str]:
    """Return the devices that `gpus` counts, named as GPUs even if simulated: scripts look for these names."""
    return [f"/device:GPU:{number}" for number in range(len(available_gpus()))]


def _get_available_devices() -> list[str]:
    return [*_get_available_gpus(), "/device:CPU:0"]


def _normalize_device_name(name: str) -> str:
    """Return a device name in the form of Keras 2: `"/device:GPU:1"` → `"/gpu:1"`."""
    return "/" + ":".join(name.lower().strip("/").split(":")[-2:])


def image_dim_ordering() -> str:
    """Return the layout of images in memory, in the words of Keras 1."""
    return "tf" if keras.config.image_data_format() == "channels_last" else "th"


def set_image_dim_ordering(order: str) -> None:
    """Set the layout of images in memory, in the words of Keras 1."""
    keras.config.set_image_data_format("channels_last" if order == "tf" else "channels_first")


def keras_test(test: Callable) -> Callable:
    """Return a test that clears the names of layers at its end, whether it passes or fails."""

    @functools.wraps(test)
    def tidy(*args: Any, **kwargs: Any) -> Any:
        try:
            return test(*args, **kwargs)
        finally:
            keras.backend.clear_session()

    return tidy
