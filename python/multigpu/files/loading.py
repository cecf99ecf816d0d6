"""Weights from a file into a model: all is checked first, so that a model is never half changed."""

import contextlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import keras
import numpy as np

from multigpu.files.listed_weights import (
    TOP_LEVEL,
    Listed,
    Mismatch,
    Pairs,
    assign,
    listed_layers,
    own_weights,
    pair,
    saved_order,
    top_level,
)
from multigpu.files.old_parallel import is_wrapped_for, nested_template, say_unwrapped
from multigpu.files.pointed_warning import warn
from multigpu.files.untrusted import MAX_UNFOLDING, SPARE_BYTES, clean_copy, refused
from multigpu.files.whole import expanded

IN_ARCHIVE = "model.weights.h5"  # where a `.keras` file has its weights


def load_into(
    template: keras.Model,
    filepath: Any,
    by_name: bool = False,
    skip_mismatch: bool = False,
    reshape: bool = False,
    **kwargs: Any,
) -> None:
    """Reads weights of any format that Keras has, told by what is in the file, not by its name."""
    path = expanded(filepath)
    if path.is_file() and zipfile.is_zipfile(path):
        with _weights_in_archive(path) as inner:
            _load_hdf5(template, inner, path, by_name, skip_mismatch, reshape, kwargs)
    elif path.is_dir() or path.suffix == ".json" or "://" in str(filepath):  # several files, or not of this machine
        with unchanged_on_error(template):
            template.load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
    else:
        _load_hdf5(template, path, path, by_name, skip_mismatch, reshape, kwargs)


def _load_hdf5(
    template: keras.Model,
    path: Path,
    shown: Path,
    by_name: bool,
    skip_mismatch: bool,
    reshape: bool,
    kwargs: dict[str, Any],
) -> None:
    with clean_copy(path, "copy.weights.h5") as file:
        group = listed_group(file)
        if group is not None:
            assign(find_pairs(group, template, shown, by_name, skip_mismatch, reshape))
        elif by_name:
            raise refused(shown, "in the format of Keras 3, which has no names of layers", "Leave out `by_name=True`.")
        else:
            _load_unlisted(template, file, skip_mismatch, kwargs)


def _load_unlisted(template: keras.Model, file: h5py.File, skip_mismatch: bool, kwargs: dict[str, Any]) -> None:
    """Reads the format of `.weights.h5`, with the optimizer's state, which Keras would leave out of a new optimizer."""
    optimizer = template.optimizer if template.compiled else None
    saved = file.get("optimizer/vars")
    if optimizer is not None and not optimizer.built and saved is not None and len(saved) > len(optimizer.variables):
        optimizer.build(template.trainable_variables)
    with unchanged_on_error(template):
        template.load_weights(file.filename, skip_mismatch=skip_mismatch, **kwargs)


@contextlib.contextmanager
def unchanged_on_error(model: keras.Model) -> Iterator[None]:
    """Gives all variables of a model and its optimizer their values back if anything fails meanwhile."""
    optimizer = model.optimizer if model.compiled else None
    variables = [*model.variables, *(optimizer.variables if optimizer is not None else [])]
    before = [np.array(variable) for variable in variables]
    try:
        yield
    except BaseException:
        assign(list(zip(variables, before, strict=True)))
        raise


@contextlib.contextmanager
def _weights_in_archive(path: Path) -> Iterator[Path]:
    """The weights of a `.keras` file, as a file of their own."""
    try:
        with zipfile.ZipFile(path) as archive, TemporaryDirectory(prefix="multigpu-") as folder:
            if archive.getinfo(IN_ARCHIVE).file_size > MAX_UNFOLDING * path.stat().st_size + SPARE_BYTES:
                raise refused(path, "a zip archive that unfolds to many times its size", "Ask for a plain file.")
            yield Path(archive.extract(IN_ARCHIVE, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise refused(path, f"a damaged `.keras` file: {error}", "Use another copy of it.") from error


# Files that list their layers ----------------------------------------------------------------------------------------


def listed_group(file: h5py.File) -> h5py.Group | None:
    """Where a file lists its layers: at the top, or under "model_weights" if it holds a whole model."""
    for group in (file, file.get("model_weights")):
        if isinstance(group, h5py.Group) and any(name.startswith("layer_names") for name in group.attrs):
            return group
    return None


def find_pairs(
    group: h5py.Group, model: keras.Model, filepath: Any, by_name: bool, skip_mismatch: bool, reshape: bool
) -> Pairs:
    """All weights of the model with their values out of the file; nothing is changed yet."""
    layers = listed_layers(group)
    parts: list[tuple[list[keras.Variable], list[Listed], str]]
    name = nested_template(layers)
    if name is not None and is_wrapped_for(layers, model):
        say_unwrapped(group.file, filepath, name)
        parts = [(saved_order(model), layers[name], f"the template (layer {name!r} in the file)")]
    elif by_name:
        parts = _parts_by_name(layers, model)
    else:
        parts = _parts_by_order(layers, model)
    if TOP_LEVEL in group and own_weights(model):
        parts.append((own_weights(model), top_level(group), "the model itself"))
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


def _parts_by_order(
    layers: dict[str, list[Listed]], model: keras.Model
) -> list[tuple[list[keras.Variable], list[Listed], str]]:
    wanted = [layer for layer in model.layers if layer.weights]
    found = {name: listed for name, listed in layers.items() if listed}
    if len(wanted) != len(found):
        raise Mismatch(
            "the model",
            f"{len(wanted)} layers with weights ({', '.join(layer.name for layer in wanted)})",
            f"{len(found)} ({', '.join(found)})",
        ).error()
    return [
        (
            saved_order(layer),
            listed,
            f"layer {layer.name!r}" + (f" ({name!r} in the file)" if name != layer.name else ""),
        )
        for layer, (name, listed) in zip(wanted, found.items(), strict=True)
    ]


def _parts_by_name(
    layers: dict[str, list[Listed]], model: keras.Model
) -> list[tuple[list[keras.Variable], list[Listed], str]]:
    return [
        (saved_order(layer), layers[layer.name], f"layer {layer.name!r}")
        for layer in model.layers
        if layer.name in layers and (layer.weights or layers[layer.name])
    ]


def _reshaped(weights: list[keras.Variable], listed: list[Listed]) -> Pairs | None:
    """Values in the shapes of the weights, where the numbers of values are equal."""
    sizes = [math.prod(weight.shape) for weight in weights]
    if sizes != [one.array.size for one in listed]:
        return None
    return [(weight, np.reshape(one.array, weight.shape)) for weight, one in zip(weights, listed, strict=True)]
