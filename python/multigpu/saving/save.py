"""Save and load a parallel model. Files contain its template, whole."""

import os
from pathlib import Path
from typing import Any

import keras

from multigpu.saving.atomic_write import atomic_write, check_overwrite, expanded
from multigpu.saving.hdf5_format import write_model
from multigpu.saving.hdf5_writer import new_buffer
from multigpu.saving.load_weights import load_into

HDF5_ENDINGS = (".h5", ".hdf5")


def save(
    template: keras.Model, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
) -> None:
    """Save a template. One file (`.keras`, `.h5`) is written whole; a folder, or a remote place, as by Keras."""
    if not _is_here(filepath) or zipped is False or not str(filepath).endswith((".keras", *HDF5_ENDINGS)):
        _check_overwrite(filepath, overwrite)
        keras.Model.save(template, filepath, zipped=zipped, **kwargs)
    elif str(filepath).endswith(HDF5_ENDINGS):
        write_model(template, filepath, overwrite, kwargs.get("include_optimizer", True))
    else:
        atomic_write(
            filepath, lambda path: keras.Model.save(template, path, zipped=zipped, **kwargs), ".keras", overwrite
        )


def save_weights(
    template: keras.Model, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None
) -> None:
    """Save a template's weights. One file is written whole; several, with `max_shard_size`, as by Keras."""
    if not _is_here(filepath) or max_shard_size is not None or not str(filepath).endswith(".weights.h5"):
        _check_overwrite(filepath, overwrite)
        keras.Model.save_weights(template, filepath, max_shard_size=max_shard_size)
    else:
        atomic_write(filepath, lambda path: write_unlisted(template, path), ".weights.h5", overwrite)


def write_unlisted(template: keras.Model, path: Path) -> None:
    """Write the format of `.weights.h5`, which also contains the optimizer's state."""
    with new_buffer(path) as file:
        keras.Model.save_weights(template, file)


def load_weights(template: keras.Model, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
    """Load weights from any file that the template accepts, and from those of the old parallel models."""
    load_into(template, filepath, bool(kwargs.pop("by_name", False)), skip_mismatch, **kwargs)


def _is_here(filepath: Any) -> bool:
    """Return whether a path is on this machine. Keras also accepts open files and remote places, as `hf://`."""
    return isinstance(filepath, str | os.PathLike) and "://" not in str(filepath)


def _check_overwrite(filepath: Any, overwrite: bool) -> None:
    if _is_here(filepath):
        check_overwrite(expanded(filepath), overwrite)
