"""A hidden folder to write in, which does not outlive its process: the next save deletes a killed one's."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """Give a new folder beside a file, locked while it is in use. Delete the folders of dead processes.

    A lock ends with the process that holds it. It is on a separate file: a lock on the written file would keep readers
    from it, because the HDF5 library locks the files that it reads.
    """
    for left in _folders(target.parent):
        with contextlib.suppress(OSError):  # another save has deleted it
            _take_away(left)
    folder, lock = _new_locked(target.parent)
    try:
        yield folder
    finally:
        _delete(folder, lock)


def _prefix() -> str:
    """Return this machine's prefix for folders: on network file systems, locks may be visible on one machine only."""
    return f".saving-{os.uname().nodename}-"


def _folders(parent: Path) -> list[Path]:
    """Return the folders that this user's processes on this machine have made to write in."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(_prefix()) and entry.is_dir(follow_symlinks=False)
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        ]
    return []


def _new_locked(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it. Try again if another save deletes it before it is locked."""
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
        with contextlib.suppress(OSError):  # if nothing can be locked, nothing is deleted as a leftover
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _take_away(folder: Path) -> None:
    lock = _open_lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # in use, or unknown
        os.close(lock)
    else:
        _delete(folder, lock)


def _open_lock(folder: Path) -> int:
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _delete(folder: Path, lock: int) -> None:
    """Delete a folder whose lock is held. Network file systems keep open files, so the folder goes last."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    with contextlib.suppress(OSError):
        folder.rmdir()
