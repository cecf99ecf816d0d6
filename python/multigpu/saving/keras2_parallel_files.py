"""Read files of the old `multi_gpu_model`: the template is nested as a layer, beside Lambdas that slice the batch."""

import re
from typing import Any

import h5py
import keras

from multigpu.private_api.warn_caller import warn
from multigpu.saving.weight_lists import Listed

LAMBDA = re.compile(r"lambda(_\d+)?$")


def nested_template(layers: dict[str, list[Listed]]) -> str | None:
    """Return the layer name under which the file of an old parallel model has the template. None for other files.

    The old function made one Lambda for each GPU and input. All weights are in one layer: the template.
    """
    with_weights = [name for name, listed in layers.items() if listed]
    num_slices = sum(LAMBDA.match(name) is not None and not listed for name, listed in layers.items())
    return with_weights[0] if num_slices >= 2 and len(with_weights) == 1 else None


def is_wrapper(model: keras.Model) -> bool:
    """Return whether a model itself has the structure of an old parallel model."""
    num_lambdas = sum(isinstance(layer, keras.layers.Lambda) for layer in model.layers)
    num_with_weights = sum(bool(layer.weights) for layer in model.layers)
    return num_lambdas >= 2 and num_with_weights == 1


def nested_config(config: dict[str, Any], name: str | None) -> dict[str, Any] | None:
    """Return the template's configuration from that of an old parallel model. None for other models.

    Each Lambda of the old function has the number of its slice and the number of slices as arguments.
    """
    inner = config.get("config")
    layers = inner.get("layers") if isinstance(inner, dict) else None
    if not isinstance(layers, list):
        return None
    configs = [layer.get("config", {}) for layer in layers if isinstance(layer, dict)]
    slices = [each for each in configs if isinstance(each, dict) and {"i", "parts"} <= set(each.get("arguments") or ())]
    if len(slices) < 2:
        return None
    return next((layer for layer, each in zip(layers, configs, strict=True) if each.get("name") == name), None)


def say_unwrapped(file: h5py.File, filepath: Any, name: str) -> None:
    """Warn the user that the template was taken out of an old parallel model."""
    what = "model" if "model_config" in file.attrs else "weights"
    warn(
        f"{str(filepath)!r} holds the {what} of a parallel model of the old `multi_gpu_model`. "
        f"Only the template, {name!r}, was read. "
        "`clean_parallel_hdf5()` makes a plain file of a whole model."
    )
