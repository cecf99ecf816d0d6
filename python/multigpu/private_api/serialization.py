"""Keras' functions that make objects from configurations.

Keras has no public way to read a configuration without its file, to trust a file that is read in parts, or to find the
object that a name in a configuration means.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras.src import api_export
from keras.src.legacy.saving import saving_options, saving_utils
from keras.src.ops import core, image, linalg, math, nn, numpy
from keras.src.saving import object_registration, serialization_lib
from keras.src.saving.keras_saveable import KerasSaveable as KerasSaveable  # layers, models, losses, optimizers, ...
from keras.src.saving.serialization_lib import SafeModeScope as SafeModeScope

from multigpu.base.replaced import intercepted

CALLS_FUNCTIONS = {"AssociativeScan", "Cond", "ForiLoop", "Map", "Scan", "Switch", "VectorizedMap", "WhileLoop"}


def model_from_config_of_keras2(config: dict[str, Any], custom_objects: dict[str, Any]) -> keras.Model:
    """Build a model from a configuration in the format of HDF5 files."""
    with saving_options.keras_option_scope(use_legacy_config=True):
        return saving_utils.model_from_config(config, custom_objects=custom_objects)


@functools.cache
def operations() -> dict[str, type[keras.Operation]]:
    """Return the operations of functional models, by name: the classes behind the functions of `keras.ops`.

    It leaves out those that call functions, such as `keras.ops.map`, because files contain no functions.
    """
    modules = (core, image, linalg, math, nn, numpy)
    members = [member for module in modules for member in inspect.getmembers(module, inspect.isclass)]
    return {
        name: kind
        for name, kind in members
        if issubclass(kind, keras.Operation) and kind is not keras.Operation and name not in CALLS_FUNCTIONS
    }


def symbol(name: str) -> Any:
    """Return the object that Keras exports under a name, or None."""
    return api_export.get_symbol_from_name(name)


def objects_in_scopes() -> dict[str, Any]:
    """Return the objects of all surrounding `custom_object_scope()`s, by name."""
    return object_registration.global_state.get_global_attribute("custom_objects_scope_dict", {})


def names_found_by(
    find: Callable[..., Any], find_registered: Callable[..., Any], applies: Callable[[], bool]
) -> contextlib.AbstractContextManager[None]:
    """Make Keras find the meaning of names with these functions inside a `with` block. Each receives Keras' own."""
    seams = [
        (serialization_lib, "_retrieve_class_or_fn", find),
        (object_registration, "get_registered_object", find_registered),
    ]
    return intercepted(seams, applies)
