"""Whole models in HDF5 files, under the names that R has for them."""

from typing import Any

import keras

from multigpu.base.arguments import check_custom_objects, check_flags, check_path
from multigpu.saving.hdf5_format import read_model, write_model
from multigpu.saving.template_facade import template_of


def save_model_hdf5(object: keras.Model, filepath: Any, overwrite: bool = True, include_optimizer: bool = True) -> bool:
    """Save a model, with its optimizer's state, as one HDF5 file. A parallel model is saved as its template.

    The file is written beside the old one and then put in its place, so that one of them is always there, whole. Keras
    reads it without this package (`keras.models.load_model`, if its name ends in `.h5`), but does not go on training
    from it: read it with `load_model_hdf5()` for that, or save as `.keras`.

    Args:
        object: a template or a parallel model.
        filepath: where to; any name, `~` is the home folder.
        overwrite: whether a file that is there may be replaced.
        include_optimizer: whether to save how the model was compiled, and the optimizer's state.

    Returns:
        True.

    Raises:
        FileExistsError: the file is there and `overwrite` is False.
        OSError: the file cannot be written; what was there stays.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> multigpu.save_model_hdf5(model, "model.h5")
        True
    """
    check_flags(overwrite=overwrite, include_optimizer=include_optimizer)
    write_model(template_of(object), filepath, overwrite, include_optimizer)
    return True


def load_model_hdf5(
    filepath: Any,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    max_seconds: float = 60,
    max_gigabytes: float = 2,
) -> keras.Model:
    """Load a model from an HDF5 file, also of Keras 2, with its weights, compiled and with its optimizer's state.

    Of a file that was saved from a parallel model of the old `multi_gpu_model` it reads the template, and warns.

    Args:
        filepath: the file; any name.
        custom_objects: classes and functions of your own that are in the model, by name.
        compile: whether to compile the model as it was when it was saved.
        safe_mode: whether to read the file in a process of its own, and to refuse a model that names anything but parts
            of models of Keras and what you passed or registered, or that holds code, such as a Lambda layer. The model
            is built in that process first, within the limits below; of objects of your own, which stay here, only what
            the file says beside them. False says that you trust the file: it is then read directly, which is faster.
        max_seconds: of processor time that building the model may take, in safe mode.
        max_gigabytes: of memory that building the model may take besides its weights, in safe mode.

    Returns:
        The model.

    Raises:
        FileNotFoundError: there is no such file.
        UntrustedFileError: the file is damaged, of another kind, or hostile, or its model takes more than the limits;
            an OSError and a ValueError.
        ValueError: the model cannot be built or compiled from what is in the file.

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
    return read_model(filepath, custom_objects, compile, safe_mode, max_seconds, max_gigabytes)


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

    Weights, optimizer and compilation are kept. A file of weights only has no model in it: load it into the template
    with `load_model_weights_hdf5()`, and save that.

    Args:
        filepath: the old file.
        to: where the plain file goes.
        custom_objects: classes and functions of your own that are in the model, by name.
        overwrite: whether a file at `to` may be replaced.
        safe_mode: as for `load_model_hdf5()`.
        max_seconds: as for `load_model_hdf5()`.
        max_gigabytes: as for `load_model_hdf5()`.

    Returns:
        True.

    Raises:
        ValueError: the old file is refused, as by `load_model_hdf5()`.
        OSError: the new file cannot be written, as by `save_model_hdf5()`.

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
