"""A file that the HDF5 library writes in memory, and that then goes to disk, on whose errors the library crashes."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import h5py


class NamedBuffer(io.BytesIO):
    """A file in memory that prints as a path, by whose ending Keras chooses the format."""

    def __str__(self) -> str:
        return "model.weights.h5"


class NamedFile(h5py.File):
    """An open HDF5 file that Keras takes where it expects a path: it prints as one."""

    def __str__(self) -> str:
        return "model.h5"


@contextlib.contextmanager
def new_buffer(path: Path) -> Iterator[NamedBuffer]:
    """A new file to write to, which is on disk at the end."""
    buffer = NamedBuffer()
    yield buffer
    path.write_bytes(buffer.getbuffer())


@contextlib.contextmanager
def new_hdf5(path: Path) -> Iterator[NamedFile]:
    """A new HDF5 file to write to."""
    with new_buffer(path) as buffer, NamedFile(buffer, "w") as file:
        yield file
