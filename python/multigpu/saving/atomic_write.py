"""A file is written whole: beside the old one, flushed to disk, and only then put in its place."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from multigpu.base.arguments import check_path
from multigpu.saving.temporary_folder import folder_beside

HINTS = {
    errno.ENOSPC: "the disk is full. Free some space, or save elsewhere",
    errno.EDQUOT: "the disk quota is used up. Free some space, or save elsewhere",
    errno.EFBIG: "the file is larger than this process or file system allows. Save elsewhere",
    errno.ENOENT: "its folder is not there. Make the folder first",
    errno.ENOTDIR: "its folder is a file. Choose another path",
    errno.EACCES: "this user may not write there. Choose another path, or change the permissions",
    errno.EPERM: "this user may not write there. Choose another path, or change the permissions",
    errno.EROFS: "the disk is read-only. Choose another path",
    errno.EISDIR: "it is a folder. Choose the path of a file",
    errno.EINVAL: "it is no regular file. Choose another path",
    errno.ENAMETOOLONG: "its name is too long. Choose a shorter one",
}


def expanded(filepath: Any) -> Path:
    """A path as it was meant: `~` is the home folder."""
    check_path("filepath", filepath)
    return Path(os.fsdecode(filepath)).expanduser()


def atomic_write(filepath: Any, write: Callable[[Path], Any], ending: str = "", overwrite: bool = True) -> None:
    """Lets `write` write a file in a hidden folder beside the one wanted, flushes it to disk, and renames it.

    Whenever this is interrupted, the old file or the new one is at `filepath`, whole. A file that is replaced keeps its
    permissions and, as far as this user may give files away, its owner. What a process that was killed has left, a
    hidden folder whose name begins with `.saving-`, goes with this user's next save into the same folder.

    Args:
        filepath: where the file is wanted; a link is followed.
        write: writes the file to the path that it is given.
        ending: what that path ends in; libraries choose formats by it.
        overwrite: whether a file that is there may be replaced.

    Raises:
        FileExistsError: the file is there and `overwrite` is False.
        OSError: it cannot be written: no such folder, no permission, a folder, a full disk. The old file stays.
    """
    target = expanded(filepath).resolve()
    check_overwrite(target, overwrite)
    with _clear_errors(target):
        _check_target(target)
        with folder_beside(target) as folder:
            temporary = folder / f"file{ending}"
            _make_empty(temporary, like=target)
            write(temporary)
            _flush_to_disk(temporary)
            os.replace(temporary, target)
        with contextlib.suppress(OSError):  # not every file system can flush a folder; the file itself is on disk
            _flush_to_disk(target.parent)


def check_overwrite(filepath: Any, overwrite: bool) -> None:
    """Refuses to replace a file unless that is wanted. Keras would ask on stdin, and wait for ever where nobody is."""
    if not overwrite and os.path.lexists(filepath):
        raise FileExistsError(
            errno.EEXIST,
            "Expected a path that does not exist, since `overwrite` is False. Received the path of one that is there. "
            "Pass `overwrite=True` to replace it",
            str(filepath),
        )


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "")
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "")
    if target.exists() and not os.access(target, os.W_OK):  # renaming would not ask
        raise PermissionError(errno.EACCES, "")


def _make_empty(temporary: Path, like: Path) -> None:
    """An empty file with the owner and permissions of the file that it will replace, or else those of any new file."""
    temporary.touch()
    if like.exists():
        _keep_owner(temporary, like.stat())
        shutil.copystat(like, temporary)


def _keep_owner(path: Path, old: os.stat_result) -> None:
    """Gives a file to the old one's owner and group, as root may; or to its group, as a member of that may."""
    for owner in (old.st_uid, -1):
        with contextlib.suppress(PermissionError):
            return os.chown(path, owner, old.st_gid)
    return None


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _clear_errors(target: Path) -> Iterator[None]:
    """Says what is wrong and what to do, in place of the system's or the HDF5 library's words."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = _errno(error)
        if number not in HINTS:
            raise
        message = f"Expected a path where a file can be written. Received one where that fails: {HINTS[number]}"
        raise OSError(number, message, str(target)) from error


def _errno(error: BaseException) -> int | None:
    """The system's error number. The HDF5 library has it in its message, at times as a RuntimeError of h5py."""
    found = re.search(r"\berrno = (\d+)", str(error))
    return int(found[1]) if found else getattr(error, "errno", None)
