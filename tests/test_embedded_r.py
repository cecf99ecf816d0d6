"""R in the process of Python: each file of `one_process/` runs in a process of its own, since R starts only once."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from without_package import run_python

from multigpu.embedded_r import missing

HERE = Path(__file__).parent
CLAIMS = HERE / "one_process"


def run_claims(*names: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs files of claims in one new process, with R in it to its end."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA"]
    files = [CLAIMS / f"{name}.py" for name in names]
    return subprocess.run(
        [*command, *files], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("names", [("crossing", "errors", "parity"), ("garbage",)], ids="-".join)
def test_claims_hold_and_the_process_ends_with_status_0(names):
    done = run_claims(*names)
    text = "".join((CLAIMS / f"{name}.py").read_text() for name in names)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = set(re.findall(r"^PASSED \S+::(\w+)", done.stdout, flags=re.MULTILINE))
    assert passed == set(re.findall(r"^def (test_\w+)", text, flags=re.MULTILINE))
