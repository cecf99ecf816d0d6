"""Write a file whole: beside the old file, flushed to disk, and then renamed to its place."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from multigpu.base.arguments import check_path
from multigpu.base.refusal import refuse
from multigpu.saving.temporary_folder import folder_beside

MAY_NOT_WRITE = "this user may not write it, or new files in its folder. Choose another path, or change the permissions"
HINTS = {
    errno.ENOSPC: "the disk is full. Free some space, or save elsewhere",
    errno.EDQUOT: "the disk quota is used up. Free some space, or save elsewhere",
    errno.EFBIG: "the file is larger than this process or file system allows. Save elsewhere",
    errno.ENOENT: "its folder is not there. Make the folder first",
    errno.ENOTDIR: "its folder is a file. Choose another path",
    errno.EACCES: MAY_NOT_WRITE,
    errno.EPERM: MAY_NOT_WRITE,
    errno.EBUSY: "it is mounted by itself, so it cannot be replaced. Mount its folder, or choose another path",
    errno.EROFS: "the disk is read-only. Choose another path",
    errno.EISDIR: "it is a folder. Choose the path of a file",
    errno.EINVAL: "it is not a regular file. Choose another path",
    errno.ENAMETOOLONG: "its name is too long. Choose a shorter one",
}


def expanded(filepath: Any) -> Path:
    """Return a path with `~` replaced by the home folder."""
    check_path("filepath", filepath)
    return Path(os.path.expanduser(os.fsdecode(filepath)))  # which leaves `~name` if there is no such user


def atomic_write(filepath: Any, write: Callable[[Path], Any], ending: str = "", overwrite: bool = True) -> None:
    """Write a file with `write` in a hidden folder beside its place, flush it to disk, and rename it.

    If this is interrupted at any time, the old file or the new file is at `filepath`, whole. A replaced file keeps its
    permissions and, if this user may give files away, its owner. A killed process leaves a hidden folder whose name
    begins with `.saving-`. This user's next save into the same folder deletes it.

    Args:
        filepath: the path of the file. Links are followed.
        write: a function that writes the file to the path that it receives.
        ending: the ending of that path, by which libraries choose the format.
        overwrite: whether an existing file may be replaced.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        OSError: the file cannot be written: the folder does not exist, permission is missing, the path is a folder, or
            the disk is full. The old file stays.
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
        with contextlib.suppress(OSError):  # some file systems cannot flush a folder; the file itself is on disk
            _flush_to_disk(target.parent)


def check_overwrite(filepath: Any, overwrite: bool) -> None:
    """Raise an error if a file exists and may not be replaced. Keras would ask on stdin and wait for ever."""
    if not overwrite and os.path.lexists(filepath):
        error = refuse(
            "a path that does not exist, since `overwrite` is False",
            f"{str(filepath)!r}, an existing file",
            "Pass `overwrite=True` to replace it.",
            FileExistsError,
        )
        error.errno = errno.EEXIST
        raise error


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "")
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "")
    if target.exists() and not os.access(target, os.W_OK):  # renaming does not check this
        raise PermissionError(errno.EACCES, "")


def _make_empty(temporary: Path, like: Path) -> None:
    """Make an empty file with the owner and permissions of the file to replace, or those of any new file."""
    temporary.touch()
    if like.exists():
        _keep_owner(temporary, like.stat())
        shutil.copystat(like, temporary)


def _keep_owner(path: Path, old: os.stat_result) -> None:
    """Give a file to the old file's owner and group, if this user is root; or to its group, if a member."""
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
    """Replace the messages of the system and of the HDF5 library by the cause and a remedy."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number, named = errno_of(error), getattr(error, "filename", None)
        is_other = isinstance(named, str | bytes) and target.parent not in Path(os.fsdecode(named)).parents
        if number not in HINTS or is_other:  # of a user's own code, about a file of its own
            raise
        message = f"Expected a path where a file can be written. Received one where that fails: {HINTS[number]}"
        raise OSError(number, message, str(target)) from error


def errno_of(error: BaseException | str) -> int | None:
    """Return the system's number of an error, or of its message: the HDF5 library puts it there."""
    found = re.search(r"\berrno (?:= )?(\d+)", str(error), re.IGNORECASE)
    return int(found[1]) if found else getattr(error, "errno", None)
