"""`make quick` has a test of every folder."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OTHERS = {TESTS / "site", TESTS / "engines" / "jax"}  # which `make test-docs` and `make jax` run
FOLDERS = sorted({file.parent for file in TESTS.rglob("test_*.py")} - OTHERS)


@pytest.mark.quick
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_has_a_quick_test(folder):
    assert any("@pytest.mark.quick\n" in file.read_text() for file in folder.glob("test_*.py"))


@pytest.mark.quick
def test_so_have_the_tests_in_r():
    """Those before `skip_on_cran()`, which all files have."""
    begun = [file.read_text().split("skip_on_cran()\n")[0] for file in (TESTS / "testthat").glob("test-*.R")]
    assert 4 <= sum("test_that(" in text for text in begun) <= 6
