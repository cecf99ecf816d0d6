"""Files as in Keras 2: HDF5 under any name, and weights that are loaded by name."""

import os
from collections.abc import Callable
from typing import Any

import h5py
import keras

from multigpu.base.refusal import refuse
from multigpu.keras2.modules import put_name
from multigpu.model.parallel_model import ParallelModel
from multigpu.saving.hdf5_models import load_model_hdf5, save_model_hdf5
from multigpu.saving.hdf5_weights import load_model_weights_hdf5, save_model_weights_hdf5


def restore() -> None:
    """Make models save to and load from HDF5 files of any name."""
    for model in (keras.Model, ParallelModel):
        for verb, as_before in VERBS.items():
            setattr(model, verb, as_before(getattr(model, verb)))
    load = _loaded_as_before(keras.models.load_model)
    for module in ("models", "saving"):
        put_name(module, "load_model", load)
        put_name(module, "save_model", lambda model, filepath, *args, **kwargs: model.save(filepath, *args, **kwargs))


def _saved_as_before(save: Callable) -> Callable:
    def saved(
        self: keras.Model, filepath: Any, overwrite: bool = True, include_optimizer: bool = True, **kwargs: Any
    ) -> None:
        save_format = kwargs.pop("save_format", None)
        if save_format not in ("h5", None):
            raise refuse(
                "`save_format` to be 'h5'",
                f"{save_format!r}, which Keras 3 does not have",
                "Use `model.export(path)` for a SavedModel.",
            )
        if _is_named(filepath, ".keras") or kwargs.get("zipped") is not None:
            save(self, filepath, overwrite, **kwargs)
        else:
            save_model_hdf5(self, filepath, overwrite, include_optimizer)

    return saved


def _weights_saved_as_before(save_weights: Callable) -> Callable:
    def saved(self: keras.Model, filepath: Any, overwrite: bool = True, **kwargs: Any) -> None:
        kwargs.pop("save_format", None)
        if _is_named(filepath, ".weights.h5"):
            save_weights(self, filepath, overwrite, **kwargs)
        else:
            save_model_weights_hdf5(self, filepath, overwrite)

    return saved


def _weights_loaded_as_before(load_weights: Callable) -> Callable:
    def loaded(
        self: keras.Model, filepath: Any, by_name: bool = False, skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        if by_name or (_is_hdf5(filepath) and not _is_named(filepath, ".weights.h5")):
            load_model_weights_hdf5(self, filepath, by_name, skip_mismatch, **kwargs)
        else:
            load_weights(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    return loaded


def _loaded_as_before(load_model: Callable) -> Callable:
    def loaded(
        filepath: Any, custom_objects: dict[str, Any] | None = None, compile: bool = True, safe_mode: bool = True
    ) -> keras.Model:
        load = load_model_hdf5 if _is_hdf5(filepath) else load_model
        return load(filepath, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)

    return loaded


def _is_named(filepath: Any, ending: str) -> bool:
    return str(filepath).endswith(ending) or not isinstance(filepath, str | os.PathLike)


def _is_hdf5(filepath: Any) -> bool:
    """Return whether a path is an HDF5 file. True for a missing file: the HDF5 reader has the clearer error."""
    if not isinstance(filepath, str | os.PathLike) or str(filepath).endswith(".keras") or os.path.isdir(filepath):
        return False
    path = os.path.expanduser(filepath)
    return not os.path.exists(path) or h5py.is_hdf5(path)


VERBS = {"save": _saved_as_before, "save_weights": _weights_saved_as_before, "load_weights": _weights_loaded_as_before}
