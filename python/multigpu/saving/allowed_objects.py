"""Names that a configuration in a file may contain: parts of Keras models, and the caller's objects."""

import contextlib
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.refusal import refuse
from multigpu.private_api.layers import is_of_keras
from multigpu.private_api.serialization import KerasSaveable, names_found_by, objects_in_scopes, symbol

WITH_CODE = (keras.layers.Lambda, keras.layers.TFSMLayer, keras.layers.TorchModuleWrapper)
CLASSES = (
    KerasSaveable,  # layers, models, operations, losses, metrics, optimizers, features
    *(keras.optimizers.schedules.LearningRateSchedule, keras.optimizers.OptimizerMap, keras.random.SeedGenerator),
    *(keras.initializers.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint, keras.DTypePolicy),
    *(keras.quantizers.Quantizer, keras.quantizers.QuantizationConfig, keras.distillation.DistillationLoss),
)
MODULES_OF_FUNCTIONS = (keras.activations, keras.losses, keras.metrics)
MAKERS = ("get", "serialize", "deserialize")  # functions of these modules that are not activations, losses or metrics
Finder = Callable[..., Any]


class CodeInFile(ValueError):  # noqa: N818 (it names what was found)
    """A file contains code that would be run."""


def is_allowed(found: Any) -> bool:
    """Return whether an object is a part of models: a class or function of Keras that only computes."""
    if isinstance(found, type):
        return issubclass(found, CLASSES) and is_of_keras(found)
    return any(
        found is function
        for module in MODULES_OF_FUNCTIONS
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name not in MAKERS
    )


def only_allowed(check: Callable[[], Any]) -> contextlib.AbstractContextManager[None]:
    """Allow configurations in this thread to name only parts of models, inside a `with` block.

    The check looks at the object that Keras finds, not at the spelling of its name. Nothing else is made or called, and
    no module is imported.

    Args:
        check: called for each name. It may raise an error to stop the reading.

    Raises:
        CodeInFile: raised inside the block if the configuration names a layer such as Lambda.
        ValueError: raised inside the block if the configuration names anything else that is not allowed.
    """
    thread = threading.get_ident()

    def checked_find(find: Finder, name: Any, registered_name: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        check()
        _check_texts(name, registered_name, module)
        _check_import(name, module)
        found = find(name, registered_name, module, *args, **kwargs)
        if not is_allowed(found) and not _is_the_callers(found, kwargs.get("custom_objects")):
            raise ValueError(f"{name!r} of {module!r} is not a part of a model.")
        return _without_code(found)

    def checked_find_registered(find: Finder, name: Any, custom_objects: Any = None, module_objects: Any = None) -> Any:
        check()
        _check_texts(name)
        found = find(name, custom_objects, module_objects)
        if found is None or not (is_allowed(found) or _is_the_callers(found, custom_objects)):
            return None  # a text, such as "add", may happen to be the name of a function: it stays a text
        return _without_code(found)

    return names_found_by(checked_find, checked_find_registered, lambda: threading.get_ident() == thread)


def _check_texts(*names: Any) -> None:
    for name in names:
        if name is not None and not isinstance(name, str):
            raise ValueError(f"a name is {name!r}, which is not text.")


def _check_import(name: str, module: str | None) -> None:
    """Raise an error for names that Keras would import to look into."""
    if module is None or module in sys.modules or not module.startswith("keras"):
        return
    if symbol(f"{module}.{name}") is None:
        raise ValueError(f"{name!r} is in the module {module!r}, which is not imported.")


def _is_the_callers(found: Any, custom_objects: Any) -> bool:
    """Return whether the caller passed or registered an object."""
    return any(found is each for each in callers_objects(custom_objects).values())


def callers_objects(custom_objects: dict[str, Any] | None) -> dict[str, Any]:
    """Return the objects that the caller has passed, here or in a scope, or registered, by name."""
    return {**keras.saving.get_custom_objects(), **_passed(custom_objects)}


def scope_of(custom_objects: dict[str, Any] | None) -> keras.saving.CustomObjectScope:
    """Return a scope with the caller's objects. A new scope of Keras alone would hide the scope around the call."""
    return keras.saving.custom_object_scope(_passed(custom_objects))


def _passed(custom_objects: dict[str, Any] | None) -> dict[str, Any]:
    return {**objects_in_scopes(), **(custom_objects or {})}


def _without_code(found: Any) -> Any:
    if isinstance(found, type) and issubclass(found, WITH_CODE):
        raise refuse(
            "a model without code in its file",
            f"one with a {found.__name__} layer, whose code would be run",
            "If you trust the file, pass `safe_mode=False`.",
            CodeInFile,
        )
    return found
