"""A hidden folder to write in, which does not outlive its process: what a killed one leaves, the next takes away."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A new folder beside a file, locked as long as it is in use; those that dead processes have left are deleted.

    A lock ends with the process that holds it, whatever number that had. It is on a file of its own: one on the file
    that is written would keep readers from it, since the HDF5 library locks what it reads.
    """
    for left in _folders(target.parent):
        with contextlib.suppress(OSError):  # another save was quicker
            _take_away(left)
    folder, lock = _new_locked(target.parent)
    try:
        yield folder
    finally:
        _delete(folder, lock)


def _prefix() -> str:
    """This machine is part of the name: on a network's file system, locks may be seen on their own machine only."""
    return f".saving-{os.uname().nodename}-"


def _folders(parent: Path) -> list[Path]:
    """Folders that this user's processes on this machine have made to write in."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(_prefix()) and entry.is_dir(follow_symlinks=False)
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        ]
    return []


def _new_locked(parent: Path) -> tuple[Path, int]:
    """A new folder and its lock. Another save that comes between making and locking it takes it for a leftover."""
    while True:
        folder = parent / f"{_prefix()}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            lock = _open_lock(folder)
        except FileNotFoundError:
            continue
        except OSError:
            folder.rmdir()
            raise
        with contextlib.suppress(OSError):  # where nothing can be locked, nothing is taken for a leftover
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _take_away(folder: Path) -> None:
    lock = _open_lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # in use, or it cannot be known
        os.close(lock)
    else:
        _delete(folder, lock)


def _open_lock(folder: Path) -> int:
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _delete(folder: Path, lock: int) -> None:
    """Deletes a folder whose lock is held. A network's file system keeps files that are open: the folder goes last."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    with contextlib.suppress(OSError):
        folder.rmdir()
