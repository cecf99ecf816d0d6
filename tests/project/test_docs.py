"""The pages in `docs/` name what is there, and the figures on them are those of the code."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_page_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    pages = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
    assert all(f"]({page})" in readme for page in pages)


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "SECURITY.md"], ids=lambda path: path.stem
)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists()
    for path in re.findall(r"\b((?:bench|tests|docs|examples)/[\w./-]+\.\w+)", text):
        assert (ROOT / path).exists()


def test_the_runs_of_the_page_on_larger_batches_are_those_of_its_script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    script = importlib.import_module("larger_batches")
    for name in ("larger_batches", "plots", "process", "first_step", "ways", "works", "old_algorithm"):
        sys.modules.pop(name, None)
    page = (ROOT / "docs" / "larger-batches.md").read_text()
    for name, (_, _, rate, _) in script.RUNS.items():
        assert f"| {name} | {rate:g} | " in page
