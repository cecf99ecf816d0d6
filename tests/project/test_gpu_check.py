"""`make gpu-check` and the tests on GPUs say plainly that there is no GPU, and run nothing on something else."""

import importlib
import os
import subprocess
import sys

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}


def test_without_a_gpu_the_check_says_so_and_runs_nothing(pytestconfig):
    script = pytestconfig.rootpath / "tests/gpu/gpu_check.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=NO_GPU)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("No GPU: TensorFlow sees none on this machine, so nothing was run")
    assert len(done.stdout.splitlines()) == 1


def test_tests_asked_for_gpus_do_not_run_on_a_cpu(pytestconfig):
    [exact_batches] = (pytestconfig.rootpath / "tests").rglob("test_exact_batches.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", exact_batches],
        capture_output=True,
        text=True,
        check=False,
        cwd=pytestconfig.rootpath,
        env={**NO_GPU, "MULTIGPU_DEVICES": "gpu"},
    )
    assert done.returncode != 0
    assert "Expected a GPU, since MULTIGPU_DEVICES=gpu." in done.stdout + done.stderr
    assert "passed" not in done.stdout


def test_the_tests_that_the_check_runs_are_there(pytestconfig, monkeypatch):
    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    monkeypatch.syspath_prepend(pytestconfig.rootpath / "tests" / "gpu")
    paths = importlib.import_module("gpu_check").TESTS
    assert [path for path in paths if not (pytestconfig.rootpath / "tests" / path).exists()] == []
