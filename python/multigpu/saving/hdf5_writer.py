"""Write an HDF5 file in memory, and then to disk: the HDF5 library crashes on errors of disks."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import h5py
import keras


class NamedBuffer(io.BytesIO):
    """A file in memory that prints as a path. Keras chooses the format by the path's ending."""

    def __str__(self) -> str:
        return "model.weights.h5"


class NamedFile(h5py.File):
    """An open HDF5 file that prints as a path, so that Keras accepts it as one."""

    def __str__(self) -> str:
        return "model.h5"


@contextlib.contextmanager
def new_buffer(path: Path) -> Iterator[NamedBuffer]:
    """Give a new file to write to, inside a `with` block, at whose end it is written to disk."""
    buffer = NamedBuffer()
    yield buffer
    path.write_bytes(buffer.getbuffer())


@contextlib.contextmanager
def new_hdf5(path: Path) -> Iterator[NamedFile]:
    """Give a new HDF5 file to write to, inside a `with` block, at whose end it is written to disk."""
    with new_buffer(path) as buffer, NamedFile(buffer, "w") as file:
        yield file
        _widen_bfloat16(file)


def _widen_bfloat16(file: h5py.File) -> None:
    """Write bfloat16 as float32: HDF5 does not have it, and h5py writes its bytes, which nobody reads as numbers."""
    found: list[h5py.Dataset] = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
    for name, values in [(each.name, each[()]) for each in found if each.dtype.str == "|V2"]:
        del file[name]
        file[name] = values.view("bfloat16").astype("float32")


def write_unlisted(template: keras.Model, path: Path) -> None:
    """Write the format of `.weights.h5`, which also contains the optimizer's state."""
    with new_buffer(path) as file:
        keras.Model.save_weights(template, file)
