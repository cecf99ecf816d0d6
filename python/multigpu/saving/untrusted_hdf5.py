"""Open untrusted files: only a copy of the harmless contents, which another process has made."""

import contextlib
import errno
import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py

from multigpu.base.refusal import refuse
from multigpu.saving import sandbox
from multigpu.saving.atomic_write import expanded
from multigpu.saving.file_errors import NoReader, UntrustedFileError, damaged, refused

if TYPE_CHECKING:
    from multigpu.saving.sandboxed_build import Trial

HDF5_SIGNATURE, ZIP_SIGNATURE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
MAX_UNFOLDING, SPARE_BYTES = 10, 64 << 20  # weights are at most this many times as large as their compressed file
TRIAL = {"stage": "trial"}  # the line that the process prints before it builds a model


@contextlib.contextmanager
def opened(filepath: Any, safe_mode: bool = True, trial: "Trial | None" = None) -> Iterator[h5py.File]:
    """Give an open HDF5 file: the file itself if trusted, or a copy with only groups, arrays of numbers, and text.

    Opening a damaged or hostile HDF5 file can crash the process. So another process, with limits of time and memory,
    makes the copy. The copy is in the folder for temporary files (`TMPDIR`), needs about the size of the file, and is
    deleted at the end.

    Args:
        filepath: path of the file.
        safe_mode: whether the file may be hostile.
        trial: how that process builds the model in the file, to check that it can be built.

    Raises:
        FileNotFoundError: the file does not exist.
        UntrustedFileError: the file is empty, damaged, or not an HDF5 file; or, in safe mode, it contains links, values
            in other files, arrays that unpack to many times its size, or a model that cannot be built. It is an
            OSError, as h5py would raise, and a ValueError.
    """
    source = expanded(filepath)
    check_kind(source)
    if not safe_mode:
        with h5py.File(source, "r") as file:
            yield file
        return
    with tempfile.TemporaryDirectory(prefix="multigpu-") as folder:
        target = Path(folder) / "copy.weights.h5"  # an ending that Keras takes
        _copy(source, target, trial)
        with h5py.File(target, "r") as copy:
            yield copy


def check_kind(source: Path) -> None:
    """Raise an error for a path that is obviously not a regular HDF5 file."""
    if not source.exists():
        what = "Expected the path of a file. Received one that does not exist"
        raise FileNotFoundError(errno.ENOENT, what, str(source))
    if not source.is_file():
        raise refused(source, "which is not a regular file", "Give the path of the file itself.")
    with source.open("rb") as file:
        start = file.read(8)
        has_signature = any(file.seek(at) == at and file.read(8) == HDF5_SIGNATURE for at in _places(source))
    if not start:
        raise refused(source, "which is empty", "Use another copy of it.")
    if start.startswith(ZIP_SIGNATURE):
        raise refused(source, "which is a zip archive", "Read a `.keras` file with `keras.models.load_model()`.")
    if not has_signature:
        raise refused(source, f"which begins with {start!r}", "It is of another kind, or damaged: use another copy.")


def _places(source: Path) -> Iterator[int]:
    """Return where an HDF5 file may begin: at its start, or after something of another program."""
    size = source.stat().st_size
    return itertools.takewhile(lambda at: at < size, itertools.chain([0], (512 << number for number in range(64))))


def _copy(source: Path, target: Path, trial: "Trial | None") -> None:
    order = {
        "source": str(source.resolve()),
        "target": str(target),
        "budget": MAX_UNFOLDING * source.stat().st_size + SPARE_BYTES,
        "path": sys.path,
        "package": str(Path(__file__).parents[1]),
        "trial": trial and trial._asdict(),
    }
    done = subprocess.run(
        [sys.executable, "-I", sandbox.__file__, json.dumps(order)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    answers = _answers(done)
    if done.returncode == 0 and answers and target.exists():
        return
    if trial is not None and answers[:1] == [TRIAL]:
        raise _failed_trial(source, trial, done, answers[1:])
    if done.returncode == -signal.SIGPROF:
        remedy = "Use another copy of it, or pass `safe_mode=False` if you trust it."
        raise refused(source, "which is damaged: reading it takes too long", remedy)
    if done.returncode < 0:
        what = f"which is damaged: the HDF5 library crashes on it ({-done.returncode})"
        raise refused(source, what, "Use another copy of it.")
    if not answers:
        raise _no_reader(done)
    if "damaged" in answers[0]:
        raise damaged(source, "which is damaged", answers[0]["damaged"])
    raise refused(source, f"in which {answers[0]['refused']}", "Ask its author for a plain file.")


def _answers(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """Return the lines that a process has printed. None for another program."""
    try:
        return [json.loads(line) for line in done.stdout.splitlines()]
    except ValueError:
        return []


def _failed_trial(
    source: Path, trial: "Trial", done: subprocess.CompletedProcess[bytes], answers: list[dict[str, Any]]
) -> Exception:
    """Return the error for a model that was not built within its limits."""
    trust = "or `safe_mode=False` if you trust the file"
    if done.returncode == -signal.SIGPROF:
        what = f"whose model takes more than {trial.max_seconds:g} s of processor time to build"
        return refused(source, what, f"Pass a larger `max_seconds`, {trust}.")
    if answers and "unbuildable" in answers[0]:
        return UntrustedFileError(answers[0]["unbuildable"])
    if not answers and done.returncode > 0:
        return _no_reader(done)
    what = f"whose model takes more than {trial.max_gigabytes:g} GB of memory to build"
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        what += f", or than the {hard / 1e9:.3g} GB that this process is limited to (`ulimit -v`)"
    return refused(source, what, f"Pass a larger `max_gigabytes`, {trust}.")


def _no_reader(done: subprocess.CompletedProcess[bytes]) -> NoReader:
    received = f"from {sys.executable!r}: {done.stderr.decode(errors='replace')[-500:]}"
    return refuse("Python to start a process of its own, to read the file in", received, error=NoReader)
