"""Weights in HDF5 files, under the names that R has for them."""

from pathlib import Path
from typing import Any, TypeVar

import h5py
import keras
import numpy as np

from multigpu.base.arguments import check_flags
from multigpu.saving.atomic_write import atomic_write, expanded
from multigpu.saving.hdf5_writer import new_hdf5
from multigpu.saving.load_weights import load_into
from multigpu.saving.save import write_unlisted
from multigpu.saving.template_facade import template_of
from multigpu.saving.weight_lists import TOP_LEVEL, list_names
from multigpu.saving.weight_matching import own_weights, saved_order

Model = TypeVar("Model", bound=keras.Model)
KERAS_3_ENDING = ".weights.h5"


def save_model_weights_hdf5(object: keras.Model, filepath: Any, overwrite: bool = True) -> bool:
    """Save the weights of a model as one HDF5 file. Of a parallel model, these are the weights of the template.

    A name that ends in `.weights.h5` gets the format of Keras 3, which has the optimizer's state too; any other name
    gets the one that lists weights by layer, as R and Keras 2 have it, and which can be loaded by name. Keras reads
    both with `model.load_weights()`.

    Args:
        object: a template or a parallel model.
        filepath: where to; any name, `~` is the home folder.
        overwrite: whether a file that is there may be replaced.

    Returns:
        True.

    Raises:
        FileExistsError: the file is there and `overwrite` is False.
        OSError: the file cannot be written; what was there stays.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> multigpu.save_model_weights_hdf5(model, "w.h5")
        True
        >>> model = multigpu.load_model_weights_hdf5(model, "w.h5")
    """
    check_flags(overwrite=overwrite)
    template = template_of(object)
    listed = not str(expanded(filepath)).endswith(KERAS_3_ENDING)
    atomic_write(
        filepath,
        lambda path: _write_listed(template, path) if listed else write_unlisted(template, path),
        ".h5" if listed else KERAS_3_ENDING,
        overwrite,
    )
    return True


def load_model_weights_hdf5(
    object: Model,
    filepath: Any,
    by_name: bool = False,
    skip_mismatch: bool = False,
    reshape: bool = False,
    safe_mode: bool = True,
) -> Model:
    """Load weights from an HDF5 file into a model. The file may contain a whole model, or be from Keras 2.

    All is checked before the first weight is changed. A file of a parallel model of the old `multi_gpu_model` is
    recognised: the template's weights are taken out of it, with a warning. Layers are matched by their order and names
    that differ only by Keras' counters (`conv2d_3` for `conv2d`) are the same.

    Args:
        object: a template or a parallel model.
        filepath: the file; any name.
        by_name: whether layers get the weights of the layer of the same name, and others keep theirs.
        skip_mismatch: whether layers that do not fit keep their weights, with a warning.
        reshape: whether weights of another shape are reshaped, if they have as many numbers.
        safe_mode: whether a process of its own reads the file, within limits, and refuses what no file of weights
            needs. False says that you trust it: it is then read directly, which is faster.

    Returns:
        The model.

    Raises:
        FileNotFoundError: there is no such file.
        UntrustedFileError: the file is damaged, of another kind, or hostile; an OSError and a ValueError.
        ValueError: the weights do not fit; the message names the layer, and the shape expected and found.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> saved = multigpu.save_model_weights_hdf5(model, "w.h5")
        >>> other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> other = multigpu.load_model_weights_hdf5(other, "w.h5")
    """
    check_flags(by_name=by_name, skip_mismatch=skip_mismatch, reshape=reshape, safe_mode=safe_mode)
    load_into(template_of(object), filepath, by_name, skip_mismatch, reshape, safe_mode)
    return object


def _write_listed(template: keras.Model, path: Path) -> None:
    """The weights by layer."""
    with new_hdf5(path) as file:
        list_names(file, "layer_names", [layer.name for layer in template.layers])
        file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", keras.__version__
        for layer in template.layers:
            _write_weights(file.create_group(layer.name), saved_order(layer))
        _write_weights(file.create_group(TOP_LEVEL), own_weights(template))


def _write_weights(group: h5py.Group, weights: list[keras.Variable]) -> None:
    names: list[str] = []
    for weight in weights:
        # parts of one layer may have layers of one name
        taken = sum(name == weight.path or name.startswith(f"{weight.path}_") for name in names)
        names.append(f"{weight.path}_{taken}" if taken else weight.path)
        group.create_dataset(names[-1], data=np.asarray(weight))
    list_names(group, "weight_names", names)
