"""The examples in the docstrings run as they stand, as a user would type them."""

import doctest
import json
import subprocess

import pytest
from forked_python import python

import multigpu

PUBLIC = [name for name in multigpu.__all__ if callable(getattr(multigpu, name))]
ALONE = ["simulate_gpus", "join_cluster", "restore_old_names"]  # what others would notice
TOGETHER = [name for name in PUBLIC if name not in ALONE]
RUNS = """
import contextlib, doctest, io, json, multigpu, sys
printed = {}
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        doctest.run_docstring_examples(getattr(multigpu, name), {}, name=name)
    printed[name] = out.getvalue()
print(json.dumps(printed))
"""


@pytest.mark.parametrize("names", [*([name] for name in ALONE), TOGETHER], ids=[*ALONE, "all others"])
def test_examples_run(names, tmp_path):
    done = subprocess.run([*python(), "-c", RUNS, *names], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == dict.fromkeys(names, "")  # a doctest that fails prints what it got


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_has_an_example(name):
    parts = doctest.DocTestFinder(recurse=False).find(getattr(multigpu, name), name)
    assert sum(len(part.examples) for part in parts) > 0
