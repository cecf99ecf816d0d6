"""Weights from a file into a model: all is checked first, so that a model is never half changed."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import keras
import numpy as np

from multigpu.files.listed_weights import assign
from multigpu.files.model_pairs import find_pairs, listed_group
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
            keras.Model.load_weights(template, filepath, skip_mismatch=skip_mismatch, **kwargs)
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
            _load_unlisted(template, file, shown, skip_mismatch, kwargs)


def _load_unlisted(
    template: keras.Model, file: h5py.File, shown: Path, skip_mismatch: bool, kwargs: dict[str, Any]
) -> None:
    """Reads the format of `.weights.h5`, with the optimizer's state, which Keras would leave out of a new optimizer."""
    if not file.visit(lambda name: name.rsplit("/", 1)[-1] == "vars" or None):
        raise refused(shown, "in which no weights are listed", "Use another copy of it.")
    optimizer = template.optimizer if template.compiled else None
    saved = file.get("optimizer/vars")
    if optimizer is not None and not optimizer.built and saved is not None and len(saved) > len(optimizer.variables):
        optimizer.build(template.trainable_variables)
    try:
        with unchanged_on_error(template):
            keras.Model.load_weights(template, file.filename, skip_mismatch=skip_mismatch, **kwargs)
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"Expected weights that fit the model. Received: {str(shown)!r}, with others. Load it into a model of the "
            f"same structure, or pass `skip_mismatch=True` to leave out what does not fit. Keras says: {error}"
        ) from error


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
