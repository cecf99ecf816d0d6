"""Save and load weights as HDF5 files, under the names that R uses."""

import itertools
from pathlib import Path
from typing import Any, TypeVar

import h5py
import keras
import numpy as np

from multigpu.base.arguments import check_flags
from multigpu.saving.atomic_write import atomic_write, expanded
from multigpu.saving.hdf5_writer import new_hdf5, write_unlisted
from multigpu.saving.load_weights import load_into
from multigpu.saving.template_facade import template_of
from multigpu.saving.weight_lists import TOP_LEVEL, list_names
from multigpu.saving.weight_matching import own_weights, saved_order

Model = TypeVar("Model", bound=keras.Model)
KERAS_3_ENDING = ".weights.h5"


def save_model_weights_hdf5(object: keras.Model, filepath: Any, overwrite: bool = True) -> bool:
    """Save the weights of a model as one HDF5 file. For a parallel model, it saves the template's weights.

    If the name ends in `.weights.h5`, the file has the format of Keras 3, which also contains the optimizer's state.
    Any other name gives the format of R and Keras 2, which lists weights by layer and can be loaded by name. Keras
    reads both with `model.load_weights()`.

    Args:
        object: a template or a parallel model.
        filepath: path of the file, with any name. `~` is the home folder.
        overwrite: whether an existing file may be replaced.

    Returns:
        True.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        OSError: the file cannot be written. An existing file stays unchanged.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> multigpu.save_model_weights_hdf5(model, "w.h5")
        True
        >>> model = multigpu.load_model_weights_hdf5(model, "w.h5")
    """
    check_flags(overwrite=overwrite)
    template = template_of("object", object)
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

    It checks everything before it changes the first weight. From the file of a parallel model of the old
    `multi_gpu_model`, it loads the template's weights and warns. It matches layers by their order, and weights within a
    layer or nested model by their names, since freezing changes their order. Names that differ only in Keras' counters
    (`conv2d_3` for `conv2d`) count as the same if the others tell them apart.

    Args:
        object: a template or a parallel model.
        filepath: path of the file, with any name.
        by_name: whether layers get the weights of the layer with the same name. Other layers keep their weights.
        skip_mismatch: whether layers whose weights in the file differ in number or shape keep their own weights, with
            a warning. The file must have as many layers as the model, unless `by_name` is True.
        reshape: whether weights of another shape are reshaped, if the number of elements is the same.
        safe_mode: whether a separate process reads the file, within limits, and raises an error for contents that no
            file of weights needs. False means that you trust the file. It is then read directly, which is faster.

    Returns:
        The model.

    Raises:
        FileNotFoundError: the file does not exist.
        UntrustedFileError: the file is damaged, of another kind, or hostile. It is an OSError and a ValueError.
        ValueError: the weights do not fit. The message names the layer, and the expected and the received shape.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> saved = multigpu.save_model_weights_hdf5(model, "w.h5")
        >>> other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> other = multigpu.load_model_weights_hdf5(other, "w.h5")
    """
    check_flags(by_name=by_name, skip_mismatch=skip_mismatch, reshape=reshape, safe_mode=safe_mode)
    load_into(template_of("object", object), filepath, by_name, skip_mismatch, reshape, safe_mode)
    return object


def _write_listed(template: keras.Model, path: Path) -> None:
    """Write the weights by layer."""
    with new_hdf5(path) as file:
        list_names(file, "layer_names", [layer.name for layer in template.layers])
        file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", keras.__version__
        for layer in template.layers:
            _write_weights(file.create_group(layer.name), saved_order(layer))
        _write_weights(file.create_group(TOP_LEVEL), own_weights(template))


def _write_weights(group: h5py.Group, weights: list[keras.Variable]) -> None:
    names: list[str] = []
    for weight in weights:
        numbered = (f"{weight.path}_{number}" for number in itertools.count(1))
        # parts of one layer may contain layers of the same name
        names.append(next(name for name in itertools.chain([weight.path], numbered) if name not in names))
        group.create_dataset(names[-1], data=np.asarray(weight))
    list_names(group, "weight_names", names)
