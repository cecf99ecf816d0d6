"""Tests are in folders that mirror the packages. `make lint` holds the order of the packages."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
# of the whole package, of this repository, of its site, of R
OF_NO_ROOM = {"exactness", "project", "gpu", "site", "testthat"}
SHARED = {"support", "fixtures"}
# with those around them
UNTESTED = {f"engines/tensorflow/{name}" for name in ("pipeline", "private_api", "profiling")}
PACKAGE = ROOT / "python" / "multigpu"
ROOMS = {str(file.parent.relative_to(PACKAGE)) for file in PACKAGE.glob("**/__init__.py")} - {"."}


def test_each_folder_with_tests_is_a_room_and_each_room_has_one():
    tested = {str(path.parent.relative_to(TESTS)) for path in TESTS.glob("**/test_*.py")}
    of_rooms = {folder for folder in tested if folder.split("/")[0] not in (OF_NO_ROOM | SHARED)}
    assert of_rooms - {"."} <= ROOMS
    assert {room for room in ROOMS if not any(folder.startswith(room) for folder in of_rooms)} == UNTESTED


def test_every_test_is_in_a_folder_of_its_own_room():
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]
