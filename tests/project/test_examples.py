"""The examples in the docstrings run as they stand, each in a process of its own, as a user would type it."""

import doctest
import subprocess
import sys

import pytest

import multigpu

PUBLIC = [name for name in multigpu.__all__ if callable(getattr(multigpu, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_example_runs(name, tmp_path):
    parts = doctest.DocTestFinder(recurse=False).find(getattr(multigpu, name), name)
    assert sum(len(part.examples) for part in parts) > 0
    code = f"import doctest, multigpu; print(doctest.run_docstring_examples(multigpu.{name}, {{}}, name={name!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"  # a doctest that fails prints what it got
