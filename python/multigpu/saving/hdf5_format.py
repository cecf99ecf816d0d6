"""Write a whole model as an HDF5 file that Keras reads, and read it back as it was."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from multigpu.private_api.layers import compile_arguments, restore_compile_arguments
from multigpu.saving.atomic_write import atomic_write
from multigpu.saving.build_model import build
from multigpu.saving.file_errors import naming
from multigpu.saving.hdf5_writer import new_hdf5
from multigpu.saving.layer_matching import find_pairs, listed_group
from multigpu.saving.sandboxed_build import Trial
from multigpu.saving.training_config import loadable, restore_optimizer
from multigpu.saving.untrusted_hdf5 import opened
from multigpu.saving.weight_matching import assign


def write_model(template: keras.Model, filepath: Any, overwrite: bool, include_optimizer: bool) -> None:
    """Save a template to a file of any name."""

    def write(path: Path) -> None:
        compiled_with = compile_arguments(template) if template.compiled else None
        with new_hdf5(path) as file, _without_advice():
            try:
                keras.saving.save_model(template, file, include_optimizer=include_optimizer)
            finally:
                if compiled_with is not None:  # Keras removes the optimizer from the model's own arguments
                    restore_compile_arguments(template, compiled_with)
            if "training_config" in file.attrs:
                file.attrs["training_config"] = json.dumps(loadable(json.loads(file.attrs["training_config"])))

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


def read_model(
    filepath: Any,
    custom_objects: dict[str, Any] | None,
    compile: bool,
    safe_mode: bool,
    max_seconds: float,
    max_gigabytes: float,
) -> keras.Model:
    """Return the model in a file, or the template of an old parallel model, with its weights, compiled.

    In safe mode it is built twice: first in another process, which may be killed.
    """
    trial = Trial.of(custom_objects, compile, max_seconds, max_gigabytes) if safe_mode else None
    with naming(filepath), opened(filepath, safe_mode, trial=trial) as file:
        model = build(file, filepath, custom_objects, compile, safe_mode, 2 * max_seconds)
        assign(find_pairs(listed_group(file), model, filepath, False, False, False), model)
        if compile and "training_config" in file.attrs:
            restore_optimizer(file, model)
        return model
