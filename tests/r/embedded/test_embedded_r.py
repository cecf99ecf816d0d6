"""R in the process of Python. Each test has it in a process of its own: R starts once, and how that ends is a claim."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_python import python

IN_PROCESS = Path(__file__).parent / "in_process"
EXAMPLES = Path(__file__).parents[3] / "examples"


def run(*arguments, start=(sys.executable,), **environment):
    """Runs Python, and R in it, to its end."""
    library = os.path.join(sys.prefix, "r")  # where `make` installs the R package
    environment = {
        "R_LIBS": library,
        "RPY2_CFFI_MODE": "ABI",
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        **environment,
    }
    command = [*start, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200, env=environment)
    done.printed = (done.stdout + done.stderr)[-30000:]
    assert "Exception ignored" not in done.printed, done.printed  # as what fails when Python ends is
    return done


@pytest.mark.parametrize("names", [["conversion", "errors", "parity"], ["garbage_collection", "magic"]], ids=" ".join)
def test_claims_hold_in_one_process_which_ends_with_status_0(names):
    files = [IN_PROCESS / f"{name}.py" for name in names]
    done = run("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", "--show-capture=no", *files)
    assert done.returncode == 0, done.printed
    passed = set(re.findall(r"^PASSED \S+::(\w+)", done.stdout, flags=re.MULTILINE))
    assert passed == set(re.findall(r"^def (test_\w+)", "".join(map(Path.read_text, files)), flags=re.MULTILINE))


NOTEBOOK = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        shell.run_cell("".join(cell["source"])).raise_error()
assert shell.user_ns["history"].history["loss"][-1] > shell.user_ns["more"].history["loss"][-1]
"""


@pytest.mark.pages
def test_the_example_notebook_runs():
    done = run("-c", NOTEBOOK, EXAMPLES / "two_languages.ipynb")
    assert done.returncode == 0, done.printed
    assert done.stdout.count("epoch ") == 5
    assert all(device in done.stdout for device in ("CPU:0", "CPU:1"))  # the overview
    assert "Image object" in done.stdout  # the plot


# How R ends ----------------------------------------------------------------------------------------------------------

# reticulate's timer goes on while C ends, long after Python; and Python is called at the end of R
TIMER_AND_PYTHON_AT_THE_END_OF_R = """
import ctypes, sys
from multigpu import embedded_r
embedded_r.start()
library = ctypes.CDLL(None)
library.__cxa_atexit(library.sleep, ctypes.c_void_p(2), None)
end = "reg.finalizer(globalenv(), function(e) f('R has ended'), onexit = TRUE); .Last <- function() stop('oops')"
embedded_r.run(end, f=lambda text: print(text, flush=True))
sys.exit(3)
"""

# a last step of R that takes Python's lock and keeps it, as reticulate does after 1.42: under rpy2's own last steps,
# which give up the lock, the process hangs (reticulate 1.28) or aborts (1.41)
LOCK_KEPT_AT_THE_END_OF_R = """
import ctypes
from multigpu import embedded_r
from multigpu.r.embedded.session import started_r
embedded_r.start()
import rpy2.robjects  # which would end R, too
library = started_r()._library
keep = ctypes.cast(ctypes.pythonapi.PyGILState_Ensure, ctypes.c_void_p)
library.R_RegisterCFinalizerEx(ctypes.c_void_p.in_dll(library, "R_GlobalEnv"), keep, 1)
"""


@pytest.mark.parametrize(
    ("script", "printed", "status"),
    [
        (TIMER_AND_PYTHON_AT_THE_END_OF_R, ["R has ended"], 3),
        (LOCK_KEPT_AT_THE_END_OF_R, [], 0),
    ],
    ids=["Python called", "lock kept"],
)
def test_the_process_ends_in_order_with_its_own_status(script, printed, status):
    done = run("-c", script)
    assert done.returncode == status, done.printed
    assert re.findall("R has.*", done.stdout) == printed


# What is missing -----------------------------------------------------------------------------------------------------

START = """
import sys
from multigpu import embedded_r
for _ in range(2):
    try:
        embedded_r.start()
    except ImportError as error:
        print(error)
"""


def test_a_missing_r_package_is_named_with_its_cure_as_often_as_it_is_missing():
    done = run("-c", START, start=python(), R_LIBS="/nowhere", R_LIBS_USER="/nowhere")
    assert done.returncode == 0, done.printed
    one, two = done.stdout.splitlines()
    assert one == two
    assert re.fullmatch(
        r"Expected the R package multigpu \S+\. Received: none, in /\S.*\. In a clone of this repository, run "
        r"`R CMD INSTALL \.`, or set R_LIBS to the library that has it\.",
        one,
    )


def test_a_missing_reticulate_is_named_with_its_cure():
    done = run("-c", START, start=python(), R_LIBS="/nowhere", R_LIBS_USER="/nowhere", R_LIBS_SITE="/nowhere")
    assert done.returncode == 0, done.printed
    assert "Expected the R package reticulate 1.28 or later. Received: none, in /" in done.stdout
    assert 'In R, run `install.packages("reticulate")`.' in done.stdout


def test_without_rpy2_all_else_works_and_its_absence_has_a_cure():
    done = run("-c", "import sys; sys.modules['rpy2'] = None" + START, start=python())
    assert done.returncode == 0, done.printed
    assert "pip install 'rpy2>=" in done.stdout
