"""Save and load whole models as HDF5 files, under the names that R uses."""

from typing import Any

import keras

from multigpu.base.arguments import check_custom_objects, check_flags, check_path
from multigpu.saving.build_model import build
from multigpu.saving.file_errors import naming
from multigpu.saving.hdf5_format import write_model
from multigpu.saving.layer_matching import find_pairs, listed_group
from multigpu.saving.sandboxed_build import Trial
from multigpu.saving.template_facade import template_of
from multigpu.saving.training_config import restore_optimizer
from multigpu.saving.untrusted_hdf5 import opened
from multigpu.saving.weight_matching import assign


def save_model_hdf5(object: keras.Model, filepath: Any, overwrite: bool = True, include_optimizer: bool = True) -> bool:
    """Save a model, with its optimizer's state, as one HDF5 file. A parallel model is saved as its template.

    The file is written beside the old one and then renamed, so a complete file exists at any time. Keras reads it
    without this package (`keras.models.load_model`, if its name ends in `.h5`), but without the state of the optimizer.
    To continue training, read it with `load_model_hdf5()`, or save as `.keras`.

    Args:
        object: a template or a parallel model.
        filepath: path of the file, with any name. `~` is the home folder.
        overwrite: whether an existing file may be replaced.
        include_optimizer: whether to save how the model was compiled, and the optimizer's state.

    Returns:
        True.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        OSError: the file cannot be written. An existing file stays unchanged.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> multigpu.save_model_hdf5(model, "model.h5")
        True
    """
    check_flags(overwrite=overwrite, include_optimizer=include_optimizer)
    write_model(template_of("object", object), filepath, overwrite, include_optimizer=include_optimizer)
    return True


def load_model_hdf5(
    filepath: Any,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    max_seconds: float = 60,
    max_gigabytes: float = 2,
) -> keras.Model:
    """Load a model from an HDF5 file, also of Keras 2, compiled, with its weights and its optimizer's state.

    From the file of a parallel model of the old `multi_gpu_model`, it reads the template and warns.

    Args:
        filepath: path of the file, with any name.
        custom_objects: your own classes and functions in the model, by name.
        compile: whether to compile the model as it was when it was saved.
        safe_mode: whether to read the file in a separate process, and to raise an error if the model contains code,
            such as a Lambda layer, or names anything except parts of Keras models and the objects that you passed or
            registered. That process builds the model first, within the limits below. Your own objects are not available
            there, so it checks only the other parts of the model. False means that you trust the file. It is then read
            directly, which is faster.
        max_seconds: the processor time that building the model may take, in safe mode.
        max_gigabytes: the memory that building the model may take, besides its weights, in safe mode.

    Returns:
        The model.

    Raises:
        FileNotFoundError: the file does not exist.
        UntrustedFileError: the file is damaged, of another kind, or hostile, or its model exceeds the limits. It is an
            OSError and a ValueError.
        ValueError: the model cannot be built or compiled from the file.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> multigpu.save_model_hdf5(model, "model.h5")
        True
        >>> model = multigpu.load_model_hdf5("model.h5")
    """
    check_path("filepath", filepath)
    check_flags(compile=compile, safe_mode=safe_mode)
    check_custom_objects(custom_objects)
    trial = Trial.of(custom_objects, compile, max_seconds, max_gigabytes) if safe_mode else None
    with naming(filepath), opened(filepath, safe_mode, trial) as file:
        model = build(file, filepath, custom_objects, compile, safe_mode, 2 * max_seconds)
        assign(find_pairs(listed_group(file), model, filepath, False, False, False), model)
        if compile and "training_config" in file.attrs:
            restore_optimizer(file, model)
        return model


def clean_parallel_hdf5(
    filepath: Any,
    to: Any,
    custom_objects: dict[str, Any] | None = None,
    overwrite: bool = False,
    safe_mode: bool = True,
    max_seconds: float = 60,
    max_gigabytes: float = 2,
) -> bool:
    """Convert an HDF5 file of a parallel model of Keras 2 into a plain file of its template.

    It keeps the weights, the optimizer and the arguments of `compile()`. If the file contains only weights, load it
    into the template with `load_model_weights_hdf5()`, and save that.

    Args:
        filepath: path of the old file.
        to: path of the new file.
        custom_objects: your own classes and functions in the model, by name.
        overwrite: whether an existing file at `to` may be replaced.
        safe_mode: as for `load_model_hdf5()`.
        max_seconds: as for `load_model_hdf5()`.
        max_gigabytes: as for `load_model_hdf5()`.

    Returns:
        True.

    Raises:
        ValueError: the old file cannot be read, as in `load_model_hdf5()`.
        OSError: the new file cannot be written, as in `save_model_hdf5()`.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> saved = multigpu.save_model_hdf5(model, "old-parallel.h5")  # stands for a file of 2018
        >>> multigpu.clean_parallel_hdf5("old-parallel.h5", "clean.h5")
        True
    """
    check_path("to", to)
    check_flags(overwrite=overwrite)
    model = load_model_hdf5(filepath, custom_objects, True, safe_mode, max_seconds, max_gigabytes)
    return save_model_hdf5(model, to, overwrite)
