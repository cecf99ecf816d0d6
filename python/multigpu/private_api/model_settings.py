"""The settings of a model, its layers and its compilation, in types of JSON, so that workers can compare them."""

from typing import Any

import keras

from multigpu.private_api.layers import compile_arguments, sublayers

COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly", "steps_per_execution")


def settings_of(model: keras.Model) -> dict[str, Any]:
    """Return the settings of a model's optimizer, its compilation and its layers, by what they are of."""
    compiled = compile_arguments(model) if model.compiled else {}
    layers = [each for each in sublayers(model) if not isinstance(each, keras.Model)]  # whose settings have names
    return {
        "optimizer": settings(getattr(model, "optimizer", None)),
        **{name: settings(compiled.get(name)) for name in COMPILED},
        **{f"layer {number}": settings(layer) for number, layer in enumerate(layers)},
    }


def settings(value: Any) -> Any:
    """Return a value in types of JSON.

    It leaves out learning rates and seeds, which are variables, so all workers take the chief's. It also leaves out
    names, which count the objects of a process.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): settings(each) for key, each in value.items() if not _may_differ(key, each)}
    if isinstance(value, list | tuple):
        return [settings(each) for each in value]
    if isinstance(value, type) or not hasattr(value, "get_config"):
        return getattr(value, "__name__", type(value).__name__)
    try:
        return {type(value).__name__: settings(value.get_config())}
    except Exception:  # any, of a user's code that one device never calls: then workers compare only the class
        return type(value).__name__


def _may_differ(key: Any, value: Any) -> bool:
    return key in ("name", "seed") or (key == "learning_rate" and isinstance(value, float))
