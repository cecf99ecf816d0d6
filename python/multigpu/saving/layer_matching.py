"""Match the values in a file that lists its layers with the weights of a model."""

import math
from typing import Any

import h5py
import keras
import numpy as np

from multigpu.base.refusal import refuse
from multigpu.private_api.warn_caller import warn
from multigpu.saving.keras2_parallel_files import is_wrapper, nested_template, say_unwrapped
from multigpu.saving.weight_lists import TOP_LEVEL, Listed, listed_layers, listed_weights
from multigpu.saving.weight_matching import Mismatch, Pairs, own_weights, pair, saved_order

Part = tuple[list[keras.Variable], list[Listed], str]  # weights, what the file lists for them, and a name for errors


def listed_group(file: h5py.File) -> h5py.Group | None:
    """Return the group in which a file lists its layers: the file, or "model_weights" for a whole model."""
    for group in (file, file.get("model_weights")):
        if isinstance(group, h5py.Group) and any(name.startswith("layer_names") for name in group.attrs):
            return group
    return None


def find_pairs(
    group: h5py.Group, model: keras.Model, filepath: Any, by_name: bool, skip_mismatch: bool, reshape: bool
) -> Pairs:
    """Return all weights of the model with their values from the file. It changes nothing."""
    layers = listed_layers(group)
    parts: list[Part]
    name = nested_template(layers)
    if by_name:
        parts = _parts_by_name(layers, model)
    elif name is not None and not is_wrapper(model):
        say_unwrapped(group.file, filepath, name)
        parts = [(saved_order(model), layers[name], f"the template (layer {name!r} in the file)")]
    else:
        parts = _parts_by_order(layers, model)
    if TOP_LEVEL in group and own_weights(model):
        parts.append((own_weights(model), listed_weights(group, TOP_LEVEL), "the model itself"))
    pairs: Pairs = []
    for weights, listed, what in parts:
        found = pair(weights, listed, what)
        if isinstance(found, Mismatch) and reshape:
            found = _reshaped(weights, listed) or found
        if isinstance(found, Mismatch) and not skip_mismatch:
            raise found.error()
        if isinstance(found, Mismatch):
            warn(f"Left out: the file has {found.found} for {found.what}, not {found.expected}.")
        else:
            pairs += found
    return pairs


def _parts_by_order(layers: dict[str, list[Listed]], model: keras.Model) -> list[Part]:
    wanted = [layer for layer in model.layers if layer.weights]
    found = {name: listed for name, listed in layers.items() if listed}
    if len(wanted) != len(found):
        raise refuse(
            f"{len(wanted)} layers with weights, as in the model: {', '.join(layer.name for layer in wanted)}",
            f"{len(found)} in the file: {', '.join(found)}",
            "Load it into a model of the same structure, or pass `by_name=True` to load the layers of the same name.",
        )
    return [
        (
            saved_order(layer),
            listed,
            f"layer {layer.name!r}" + (f" ({name!r} in the file)" if name != layer.name else ""),
        )
        for layer, (name, listed) in zip(wanted, found.items(), strict=True)
    ]


def _parts_by_name(layers: dict[str, list[Listed]], model: keras.Model) -> list[Part]:
    return [
        (saved_order(layer), layers[layer.name], f"layer {layer.name!r}")
        for layer in model.layers
        if layer.name in layers and (layer.weights or layers[layer.name])
    ]


def _reshaped(weights: list[keras.Variable], listed: list[Listed]) -> Pairs | None:
    """Return the values in the shapes of the weights, if the numbers of elements are equal."""
    sizes = [math.prod(weight.shape) for weight in weights]
    if sizes != [one.array.size for one in listed]:
        return None
    return [(weight, np.reshape(one.array, weight.shape)) for weight, one in zip(weights, listed, strict=True)]
