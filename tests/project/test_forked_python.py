"""A process that is forked behaves as one that is started."""

import os
import signal
import subprocess
import sys

import forked_python
import pytest


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    monkeypatch.delenv("FORKED_PYTHON", raising=False)


CODES = {
    "arguments and output": "import sys; print(sys.argv, sys.stdin.read(), flush=True); print('b', file=sys.stderr)",
    "environment and folder": "import os; print(os.getcwd(), os.environ['A'], os.environ.get('HOME'), __name__)",
    "path": "import sys; print(sys.path[:2])",
    "a status": "import sys; sys.exit(3)",
    "an error": "raise ValueError('so')",
    "a warning": "import warnings; warnings.warn('so')",
    "a signal": "import os; os.kill(os.getpid(), 9)",
    "at its end": "import atexit; atexit.register(print, 'end')",
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_forked_process_does_what_a_started_one_does(code, tmp_path):
    (tmp_path / "script.py").write_text(code)
    for words in (["-W", "error", "-c", code, "x", "y"], ["script.py", "x"], ["-m", "script", "x"]):
        started, forked = (
            subprocess.run(
                [*command, *words], cwd=tmp_path, input="in", capture_output=True, text=True, check=False,
                env={"A": "1", "PYTHONPATH": "/a"},
            )
            for command in ([sys.executable], forked_python.python())
        )  # fmt: skip
        assert forked.returncode == started.returncode
        assert forked.stdout == started.stdout
        assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_keras_is_imported():
    code = "import sys; print('keras' in sys.modules, 'multigpu' in sys.modules)"
    assert subprocess.check_output([*forked_python.python(), "-c", code], text=True) == "True False\n"


def test_it_ends_with_its_command():
    stopped = "import os, signal; print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([*forked_python.python(), "-c", stopped], stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        assert os.path.exists(f"/proc/{worker}")
        process.kill()
        assert process.stdout.read() == ""  # nobody has it open any more
        assert process.wait() == -signal.SIGKILL
