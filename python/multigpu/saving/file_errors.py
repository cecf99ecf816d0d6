"""Errors of files: each names the file, what was expected, and what was received."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from multigpu.base.refusal import refuse, with_more
from multigpu.engines import OUT_OF_MEMORY
from multigpu.saving.atomic_write import errno_of


class UntrustedFileError(OSError, ValueError):
    """A file that multigpu refuses to read: damaged, of another kind, or with unexpected contents.

    Example:
        >>> import multigpu
        >>> with open("model.h5", "w") as file:
        ...     size = file.write("no HDF5 file")
        >>> try:
        ...     model = multigpu.load_model_hdf5("model.h5")
        ... except multigpu.UntrustedFileError:
        ...     print("Use another copy.")
        Use another copy.
    """


class NoReader(RuntimeError):  # noqa: N818 (it names what is missing)
    """No process could be started to read a file."""


def refused(filepath: Any, received: str, remedy: str, expected: str = "an HDF5 file of a model or its weights") -> Any:
    """Return the error for a file."""
    return refuse(expected, f"{os.fspath(filepath)!r}, {received}", remedy, UntrustedFileError)


def damaged(filepath: Any, what: str, reason: str) -> Exception:
    """Return the error for a file of which no copy can be made, because it is damaged, or for want of room."""
    if errno_of(reason) not in (errno.ENOSPC, errno.EDQUOT):
        return refused(filepath, f"{what}: {reason}", "Use another copy of it.")
    return refuse(
        f"room for a copy of {os.fspath(filepath)!r} in the folder for temporary files",
        f"{tempfile.gettempdir()!r}, which is full: {reason}",
        "Free some space there, or set the environment variable TMPDIR to another folder before Python starts.",
        OSError,
    )


@contextlib.contextmanager
def naming(filepath: Any) -> Iterator[None]:
    """Raise all errors inside a `with` block as a ValueError or OSError that names the file."""
    path = str(filepath)
    try:
        yield
    except (NoReader, Warning, *OUT_OF_MEMORY):
        raise  # not errors of the file
    except Exception as error:
        if isinstance(error, ValueError | OSError) and path in str(error):
            raise
        if isinstance(error, ValueError):
            raise with_more(error, f"The file is {path!r}.") from error
        what = f"which cannot be read ({type(error).__name__}: {error})"
        raise refused(path, what, "Use another copy of it.") from error
