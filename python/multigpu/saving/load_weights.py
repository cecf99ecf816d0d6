"""Load weights from a file into a model. All is checked first, so that a model is never half changed."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import keras

from multigpu.base.refusal import refuse
from multigpu.private_api.layers import variables_of
from multigpu.saving.atomic_write import expanded
from multigpu.saving.file_errors import damaged, naming, refused
from multigpu.saving.hdf5_writer import NamedBuffer
from multigpu.saving.layer_matching import find_pairs, listed_group
from multigpu.saving.untrusted_hdf5 import MAX_UNFOLDING, SPARE_BYTES, opened
from multigpu.saving.weight_matching import assign

IN_ARCHIVE = "model.weights.h5"  # the path of the weights in a `.keras` file


def load_into(
    template: keras.Model,
    filepath: Any,
    by_name: bool = False,
    skip_mismatch: bool = False,
    reshape: bool = False,
    safe_mode: bool = True,
    **kwargs: Any,
) -> None:
    """Read weights in any format of Keras, recognized by the contents of the file, not by its name."""
    path = expanded(filepath)
    with naming(filepath), unchanged_on_error(template):
        if path.is_dir() or path.suffix == ".json" or "://" in str(filepath):  # several files, or remote files
            keras.Model.load_weights(template, filepath, skip_mismatch=skip_mismatch, **kwargs)
            return
        archived = path.is_file() and zipfile.is_zipfile(path)
        with (
            _weights_in_archive(path) if archived else contextlib.nullcontext(path) as inner,
            opened(inner, safe_mode) as file,
        ):
            group = listed_group(file)
            if group is not None and kwargs:
                raise refuse(
                    "`load_weights()` of a file that lists weights by layer without further arguments",
                    ", ".join(f"`{name}`" for name in kwargs),
                    "It takes `by_name`, `skip_mismatch`, `reshape` and `safe_mode`.",
                )
            if group is not None:
                assign(find_pairs(group, template, path, by_name, skip_mismatch, reshape), template)
            elif by_name:
                raise refused(
                    path,
                    "in the format of Keras 3, which has no names of layers",
                    "Leave out `by_name=True`.",
                    "an HDF5 file with names of layers, for `by_name=True`",
                )
            else:
                _load_unlisted(template, file, path, skip_mismatch, kwargs)


def _load_unlisted(
    template: keras.Model, file: h5py.File, shown: Path, skip_mismatch: bool, kwargs: dict[str, Any]
) -> None:
    """Read the format of `.weights.h5`, with the optimizer's state, which Keras skips for an optimizer without one."""
    if not file.visit(lambda name: name.rsplit("/", 1)[-1] == "vars" or None):
        raise refused(shown, "in which no weights are listed", "Use another copy of it.")
    path = file.filename  # Keras chooses the format by its ending
    named = path if path.endswith(".weights.h5") else NamedBuffer(Path(path).read_bytes())
    try:
        keras.Model.load_weights(template, named, skip_mismatch=skip_mismatch, **kwargs)
    except (ValueError, KeyError) as error:
        raise refuse(
            "weights that fit the model",
            f"{str(shown)!r}, whose weights do not fit",
            "Load it into a model of the same structure, or pass `skip_mismatch=True` to skip layers that do not fit. "
            f"Keras' error: {error}",
        ) from error


@contextlib.contextmanager
def unchanged_on_error(model: keras.Model) -> Iterator[None]:
    """Restore all variables of a model and its optimizer if a `with` block raises an error."""
    variables = variables_of(model)
    before = [variable.numpy() for variable in variables]
    try:
        yield
    except BaseException:
        assign(list(zip(variables, before, strict=True)), model)
        raise


@contextlib.contextmanager
def _weights_in_archive(path: Path) -> Iterator[Path]:
    """Give the weights of a `.keras` file as a separate file."""
    with TemporaryDirectory(prefix="multigpu-") as folder:
        yield _extracted(path, folder)


def _extracted(path: Path, folder: str) -> Path:
    try:
        with zipfile.ZipFile(path) as archive:
            too_large = archive.getinfo(IN_ARCHIVE).file_size > MAX_UNFOLDING * path.stat().st_size + SPARE_BYTES
            if not too_large:
                return Path(archive.extract(IN_ARCHIVE, folder))
    except Exception as error:  # encrypted, truncated, or unknown compression: each raises a different error
        raise damaged(path, "a damaged or encrypted `.keras` file", f"{type(error).__name__}: {error}") from error
    raise refused(path, "a zip archive that expands to many times its size", "Use a copy without compression.")
