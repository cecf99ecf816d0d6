"""`make gpu-check` and the tests on GPUs say plainly that there is no GPU, and run nothing on something else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}


def test_without_a_gpu_the_check_says_so_and_runs_nothing():
    done = subprocess.run(
        [sys.executable, ROOT / "bench/gpu_check.py"], capture_output=True, text=True, check=False, env=NO_GPU
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("No GPU: TensorFlow sees none on this machine, so nothing was run")
    assert len(done.stdout.splitlines()) == 1


def test_tests_asked_for_gpus_do_not_run_on_a_cpu():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/exactness/test_exact_batches.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**NO_GPU, "MULTIGPU_DEVICES": "gpu"},
    )
    assert done.returncode != 0
    assert "Expected a GPU, since MULTIGPU_DEVICES=gpu." in done.stdout + done.stderr
    assert "passed" not in done.stdout
