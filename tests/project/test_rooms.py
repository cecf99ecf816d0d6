"""Tests are in folders that mirror the rooms of the package. The order of the rooms is held by `make lint`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
# of the whole package, of this repository, of its site, of R
OF_NO_ROOM = {"exactness", "project", "gpu", "site", "testthat"}
SHARED = {"support", "fixtures"}
ROOMS = {file.parent.name for file in (ROOT / "python" / "multigpu").glob("*/__init__.py")}


def test_each_folder_with_tests_is_a_room_and_each_room_has_one():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/*.py")} - SHARED
    assert folders - OF_NO_ROOM == ROOMS


def test_every_test_is_in_a_folder_of_its_own_room():
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]
