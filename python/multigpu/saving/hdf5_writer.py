"""A file on disk that the HDF5 library writes to, and that never tells it of an error: the library crashes on one."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py


class DeferredErrorFile(io.BytesIO):
    """A new file on disk. When the disk takes no more, it goes on in memory and keeps the error for later.

    It is a BytesIO because that is what Keras writes to, other than paths; and it prints as its path, by whose ending
    Keras chooses the format.
    """

    def __init__(self, path: Path):
        super().__init__()
        self._path = path
        self._disk: Any = path.open("w+b", buffering=0)
        self.error: OSError | None = None

    def __str__(self) -> str:
        return str(self._path)

    def write(self, data: Any) -> int:
        """Writes all of the data."""
        if self.error is None:
            position = self._disk.tell()
            try:
                return self._write_to_disk(memoryview(data).cast("B"))
            except OSError as error:
                self._go_on_in_memory(error, position)
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        """Makes the file longer, with zeros, or shorter."""
        if self.error is None:
            try:
                return self._disk.truncate(size)
            except OSError as error:
                self._go_on_in_memory(error, self._disk.tell())
        missing = (self.tell() if size is None else size) - len(self.getbuffer())
        if missing > 0:  # memory, unlike a disk, is not made longer by this
            position = self.tell()
            super().seek(0, io.SEEK_END)
            super().write(bytes(missing))
            super().seek(position)
        return super().truncate(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place in the file."""
        return super().seek(offset, whence) if self.error else self._disk.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file."""
        return super().tell() if self.error else self._disk.tell()

    def read(self, size: int | None = -1) -> bytes:
        """Reads so many bytes, or the rest."""
        return super().read(size) if self.error else self._disk.read(size)

    def readinto(self, buffer: Any) -> int:
        """Reads as many bytes as the buffer takes."""
        return super().readinto(buffer) if self.error else self._disk.readinto(buffer)

    def close(self) -> None:
        """Closes the file; the error stays."""
        self._disk.close()
        super().close()

    def _write_to_disk(self, data: memoryview) -> int:
        left = data
        while left:
            left = left[self._disk.write(left) :]  # it may take a part
        return len(data)

    def _go_on_in_memory(self, error: OSError, position: int) -> None:
        self._disk.seek(0)
        super().write(self._disk.read())
        super().seek(position)
        self.error = error


class NamedFile(h5py.File):
    """An open HDF5 file that Keras takes where it expects a path: it prints as one."""

    def __str__(self) -> str:
        return "model.h5"


@contextlib.contextmanager
def deferred_error_file(path: Path) -> Iterator[DeferredErrorFile]:
    """A new file to write to; the error that there was is raised at the end."""
    file = DeferredErrorFile(path)
    try:
        yield file
    finally:
        file.close()
        if file.error is not None:
            raise file.error


@contextlib.contextmanager
def new_hdf5(path: Path) -> Iterator[NamedFile]:
    """A new HDF5 file to write to."""
    with deferred_error_file(path) as raw, NamedFile(raw, "w") as file:
        yield file
