"""What a killed save leaves goes with the next one; what a living one writes never does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from multigpu.saving import temporary_folder
from multigpu.saving.atomic_write import atomic_write
from multigpu.saving.temporary_folder import folder_beside

ALONE = f"""
import importlib.util, os, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("temporary_folder", {temporary_folder.__file__!r})  # no TensorFlow
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
target = Path("model.h5")
"""
WAIT = """
with module.folder_beside(target) as folder:
    (folder / "file").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""
SAVE_OFTEN = """
for number in range(300):
    with module.folder_beside(target) as folder:
        (folder / "file").write_text(str(number))
        assert (folder / "file").read_text() == str(number)
        os.replace(folder / "file", target)
"""


def start(code, folder):
    return subprocess.Popen(
        [sys.executable, "-c", ALONE + code],
        cwd=folder,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def save(folder):
    atomic_write(folder / "model.h5", lambda path: path.write_text("new"))


def beginnings(folder):
    return sorted(path.name[:8] for path in folder.iterdir())


def test_what_a_killed_process_leaves_goes_and_what_a_living_one_writes_stays(tmp_path):
    living, killed = (start(WAIT, tmp_path) for _ in range(2))
    of_living, of_killed = (tmp_path / process.stdout.readline().strip() for process in (living, killed))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (of_killed / "file").exists()
    save(tmp_path)
    assert not of_killed.exists()
    assert (of_living / "file").read_text() == "half"
    assert living.communicate("")[1] == ""
    assert beginnings(tmp_path) == ["model.h5"]


def test_processes_that_save_at_the_same_time_do_not_disturb_each_other(tmp_path):
    several = [start(SAVE_OFTEN, tmp_path) for _ in range(3)]
    assert [process.communicate()[1] for process in several] == [""] * 3
    assert (tmp_path / "model.h5").read_text() == "299"
    assert beginnings(tmp_path) == ["model.h5"]


def test_a_save_inside_of_a_save_does_not_take_it_for_a_leftover(tmp_path):
    def write(path):
        path.write_text("outer")
        save(tmp_path)

    atomic_write(tmp_path / "other.h5", write)
    assert (tmp_path / "other.h5").read_text() == "outer"
    assert beginnings(tmp_path) == ["model.h5", "other.h5"]


@pytest.mark.parametrize("files", [[], ["file.h5"], ["lock"], ["file.h5", "lock"]])
def test_a_save_killed_at_any_moment_is_taken_away(files, tmp_path):
    left = tmp_path / f"{temporary_folder._prefix()}0123456789abcdef"
    left.mkdir()
    for name in files:
        (left / name).touch()
    save(tmp_path)
    assert beginnings(tmp_path) == ["model.h5"]


def test_folders_of_other_machines_and_other_things_are_left_alone(tmp_path):
    (tmp_path / ".saving-another.machine-0123456789abcdef").mkdir()
    (tmp_path / f"{temporary_folder._prefix()}file").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / f"{temporary_folder._prefix()}link").symlink_to(elsewhere)
    save(tmp_path)
    assert beginnings(tmp_path) == [".saving-"] * 3 + ["elsewher", "model.h5"]
    assert (elsewhere / "precious").exists()


def test_folders_of_other_users_are_left_alone(tmp_path, monkeypatch):
    left = tmp_path / f"{temporary_folder._prefix()}0123456789abcdef"
    left.mkdir()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    save(tmp_path)
    assert left.exists()


def test_a_save_whose_folder_is_taken_for_a_leftover_before_it_is_locked_makes_another(tmp_path, monkeypatch):
    """Between making a folder, opening its lock and locking it, another process may come."""
    made, lock, open_lock = [], temporary_folder.fcntl.flock, temporary_folder._open_lock

    def taken_before_it_is_opened(folder):
        made.append(folder)
        if len(made) == 1:
            folder.rmdir()
        return open_lock(folder)

    def taken_before_it_is_locked(descriptor, how):
        if len(made) == 2:
            temporary_folder.shutil.rmtree(made[1])
        lock(descriptor, how)

    monkeypatch.setattr(temporary_folder, "_open_lock", taken_before_it_is_opened)
    monkeypatch.setattr(temporary_folder.fcntl, "flock", taken_before_it_is_locked)
    with folder_beside(tmp_path / "model.h5") as folder:
        (folder / "file").touch()
    assert len(set(made)) == 3
    assert beginnings(tmp_path) == []


def test_where_nothing_can_be_locked_files_are_written_and_nothing_is_taken_away(tmp_path, monkeypatch):
    def refuse(descriptor, how):
        raise OSError("No locks available")

    left = tmp_path / f"{temporary_folder._prefix()}0123456789abcdef"
    left.mkdir()
    monkeypatch.setattr(temporary_folder.fcntl, "flock", refuse)
    save(tmp_path)
    assert (tmp_path / "model.h5").read_text() == "new"
    assert left.exists()


def test_a_folder_that_may_be_written_but_not_listed_is_written(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(f"Permission denied: {str(path)!r}")

    monkeypatch.setattr(os, "scandir", refuse)
    atomic_write(tmp_path / "model.h5", lambda path: path.write_text("new"))
    assert (tmp_path / "model.h5").read_text() == "new"


def test_a_file_can_be_read_as_soon_as_it_has_its_name(tmp_path, monkeypatch):
    """The HDF5 library locks what it reads: a lock on the file itself would be in its way until the save has ended."""
    read, rename = [], os.replace

    def write(path):
        with h5py.File(path, "w") as file:
            file["a"] = 1

    def rename_and_read(*paths):
        rename(*paths)
        with h5py.File(tmp_path / "m.h5") as file:
            read.append(int(file["a"][()]))

    monkeypatch.setattr(os, "replace", rename_and_read)
    atomic_write(tmp_path / "m.h5", write)
    assert read == [1]


def test_descriptors_do_not_pile_up(tmp_path):
    save(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        save(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
