"""Files of strangers: nothing of them is opened here but a copy, which another process made of what is harmless."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py

from multigpu.files import checked_copy
from multigpu.files.whole import expanded

HDF5_SIGNATURE, ZIP_SIGNATURE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
MAX_UNFOLDING, SPARE_BYTES = 10, 64 << 20  # compressed weights are at most so many times the size of their file


class RefusedFile(OSError, ValueError):  # noqa: N818 (what is refused is the file)
    """A file that is not read: damaged, of another kind, or with something in it that no file of weights needs."""


def refused(filepath: Any, received: str, remedy: str, expected: str = "an HDF5 file of a model or its weights") -> Any:
    """The error for a file."""
    return RefusedFile(f"Expected {expected}. Received: {os.fspath(filepath)!r}, {received}. {remedy}")


@contextlib.contextmanager
def clean_copy(filepath: Any, name: str = "copy.h5") -> Iterator[h5py.File]:
    """A copy of an HDF5 file that holds only groups, arrays of numbers, and text; gone afterwards.

    The copy is made in the folder for temporary files (`TMPDIR`), at about the size of the file, by a process with
    limits of time and memory: opening a damaged or hostile HDF5 file can crash the process that does it.

    Raises:
        FileNotFoundError: there is no such file.
        RefusedFile: it is empty, damaged, no HDF5 file, or holds links, values kept elsewhere, or arrays that unfold
            to many times its size. It is an OSError, as h5py would raise, and a ValueError.
    """
    source = expanded(filepath)
    check_kind(source)
    with tempfile.TemporaryDirectory(prefix="multigpu-") as folder:
        target = Path(folder) / name
        _copy(source, target)
        with h5py.File(target, "r") as copy:
            yield copy


def check_kind(source: Path) -> None:
    """Refuses what is no regular HDF5 file at first sight."""
    if not source.exists():
        raise FileNotFoundError(errno.ENOENT, "Expected the path of a file. Received one where no file is", str(source))
    if not source.is_file():
        raise refused(source, "which is no regular file", "Give the path of the file itself.")
    with source.open("rb") as file:
        start = file.read(8)
    if not start:
        raise refused(source, "which is empty", "Use another copy of it.")
    if start.startswith(ZIP_SIGNATURE):
        raise refused(source, "which is a zip archive", "Read a `.keras` file with `keras.models.load_model()`.")
    if start != HDF5_SIGNATURE:
        raise refused(source, f"which begins with {start!r}", "It is of another kind, or damaged: use another copy.")


def _copy(source: Path, target: Path) -> None:
    order = {
        "source": str(source.resolve()),
        "target": str(target),
        "budget": MAX_UNFOLDING * source.stat().st_size + SPARE_BYTES,
        "path": sys.path,
    }
    done = subprocess.run(
        [sys.executable, "-I", checked_copy.__file__, json.dumps(order)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode == 0 and target.exists():
        return
    another = "Use another copy of it."
    if done.returncode == -signal.SIGPROF:
        raise refused(source, "which is damaged: reading it takes too long", another)
    if done.returncode < 0:
        raise refused(source, f"which is damaged: the HDF5 library crashes on it ({-done.returncode})", another)
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(
            "Expected Python to start a process of its own, to read the file in. "
            f"Received from {sys.executable!r}: {done.stderr.decode(errors='replace')[-500:]}"
        ) from error
    if "damaged" in answer:
        raise refused(source, f"which is damaged: {answer['damaged']}", another)
    raise refused(source, f"in which {answer['refused']}", "Ask whoever made it for a plain file.")
