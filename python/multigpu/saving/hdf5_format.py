"""Write a whole model as an HDF5 file that Keras reads."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
from keras.saving import save_model  # Keras' own, also where `restore_old_names()` replaces it

from multigpu.private_api.layers import compile_arguments, restore_compile_arguments
from multigpu.saving.atomic_write import atomic_write
from multigpu.saving.hdf5_writer import new_hdf5
from multigpu.saving.training_config import loadable


def write_model(template: keras.Model, filepath: Any, overwrite: bool, **kwargs: Any) -> None:
    """Save a template to a file of any name, with the further arguments of `keras.saving.save_model()`."""

    def write(path: Path) -> None:
        compiled_with = compile_arguments(template) if template.compiled else None
        with new_hdf5(path) as file, _without_advice():
            try:
                save_model(template, file, **kwargs)
            finally:
                if compiled_with is not None:  # Keras removes the optimizer from the model's own arguments
                    restore_compile_arguments(template, compiled_with)
            if "training_config" in file.attrs:
                training_config = json.loads(file.attrs["training_config"])
                file.attrs["training_config"] = json.dumps(loadable(training_config, compile_arguments(template)))

    atomic_write(filepath, write, ".h5", overwrite)


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Hide Keras' advice to save in another format: the caller has chosen this one."""
    logger = logging.getLogger("absl")

    def wanted(record: logging.LogRecord) -> bool:
        return "This file format is considered legacy" not in record.getMessage()

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)
