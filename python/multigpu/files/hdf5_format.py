"""A whole model as an HDF5 file of Keras: written so that Keras reads it, and read back as it was."""

import json
from pathlib import Path
from typing import Any

import h5py
import keras

from multigpu.files.legacy_config import model_from_legacy_config
from multigpu.files.listed_weights import assign, listed_layers
from multigpu.files.model_pairs import find_pairs, listed_group
from multigpu.files.old_parallel import nested_config, nested_template
from multigpu.files.patient_file import new_hdf5
from multigpu.files.training_config import compile_arguments_of, loadable, restore_optimizer
from multigpu.files.untrusted import clean_copy, refused
from multigpu.files.whole import write_whole
from multigpu.template import compile_arguments, restore_compile_arguments


def write_model(template: keras.Model, filepath: Any, overwrite: bool, include_optimizer: bool) -> None:
    """Saves a template; the file has any name."""

    def write(path: Path) -> None:
        compiled_with = compile_arguments(template) if template.compiled else None
        with new_hdf5(path) as file:
            try:
                keras.saving.save_model(template, file, include_optimizer=include_optimizer)
            finally:
                if compiled_with is not None:  # Keras takes the optimizer out of the model's own arguments
                    restore_compile_arguments(template, compiled_with)
            if "training_config" in file.attrs:
                file.attrs["training_config"] = json.dumps(loadable(json.loads(file.attrs["training_config"])))

    write_whole(filepath, write, ".h5", overwrite)


def read_model(filepath: Any, custom_objects: dict[str, Any] | None, compile: bool, safe_mode: bool) -> keras.Model:
    """Builds the model in a file, or the template in that of an old parallel model, with its weights, compiled."""
    with clean_copy(filepath) as file:
        model = _build(file, filepath, custom_objects, safe_mode)
        training_config = _json(file, "training_config", filepath)
        if compile and training_config is not None:
            try:
                arguments = compile_arguments_of(training_config, custom_objects)
                model.compile(**arguments)
            except Exception as error:
                raise ValueError(
                    f"Expected a model that can be compiled as it was. Received one that cannot: {error} Pass what it "
                    "misses as `custom_objects={name: object}`, or pass `compile=False` and compile it yourself."
                ) from error
            restore_optimizer(file, model)
        return model


def _build(file: h5py.File, filepath: Any, custom_objects: dict[str, Any] | None, safe_mode: bool) -> keras.Model:
    config, group = _json(file, "model_config", filepath), listed_group(file)
    if config is None or group is None:
        remedy = "Read weights with `load_model_weights_hdf5(model, filepath)`."
        raise refused(filepath, "which holds no model", remedy, "an HDF5 file of a whole model")
    layers = listed_layers(group)
    num_elements = sum(one.array.size for listed in layers.values() for one in listed)
    config = nested_config(config, nested_template(layers)) or config
    model = model_from_legacy_config(config, custom_objects, safe_mode, num_elements)
    assign(find_pairs(group, model, filepath, False, False, False))
    return model


def _json(file: h5py.File, name: str, filepath: Any) -> Any:
    """An attribute that holds JSON; None if there is none."""
    if name not in file.attrs:
        return None
    text = file.attrs[name]
    try:
        config = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise refused(filepath, f"whose {name!r} is no JSON ({error})", "Use another copy of it.") from error
    if not isinstance(config, dict):
        raise refused(filepath, f"whose {name!r} is no configuration", "Use another copy of it.")
    return config
