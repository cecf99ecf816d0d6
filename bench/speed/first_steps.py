"""CPU seconds of the first step of deep models from `keras.applications`, on several devices and on one, batch 16.

Each is measured in a process of its own, also with the package as it was before its steps were optimized in one round.
Run `python bench/speed/first_steps.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import itertools
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

import keras
import numpy as np

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script

BEFORE = "f26cf2c"  # the commit that is compared
SIZES = {"EfficientNetB0": 64, "DenseNet121": 64, "Xception": 71}
NUMBERS, STEPS, BATCH = (2, 4, 8), 5, 16
NOTE = (
    "÷ one device: CPU seconds of the first step of `fit`, with a model of random weights, divided by those of the "
    f"plain model on one device. Before: commit {BEFORE}. A step: CPU seconds of a later step. Other programs ran at "
    "the same time, so wall seconds depend on them. By Keras' default, XLA compiles the plain model, which takes most "
    "of its first step. Without XLA (`jit_compile=False`, sgd, on a quiet machine on 2026-11-26), "
    "EfficientNetB0 took 5.8 CPU s on one device; 8 replicas took 56.3 before and 34.7 now (6.0 times one device), "
    "and synchronized 86.6 before and 52.4 now (9.0 times)."
)


def measure(model: str, num_replicas: int, synchronized: bool) -> dict[str, float]:
    """CPU and wall seconds of the first step, and CPU seconds of a later one; 0 replicas are the plain model."""
    multigpu.simulate_gpus(max(num_replicas, 1))
    size = SIZES[model]
    made = getattr(keras.applications, model)(weights=None, input_shape=(size, size, 3), classes=10)
    if synchronized:
        multigpu.synchronize_batch_norm(made)
    if num_replicas:
        made = multigpu.multi_gpu_model(made, gpus=num_replicas)
    made.compile("adam", "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(BATCH, size, size, 3)).astype("float32")

    def step() -> tuple[float, float]:
        begin, cpu = time.perf_counter(), _cpu_seconds()
        made.fit(x, np.arange(BATCH) % 10, batch_size=BATCH, verbose=0)
        return _cpu_seconds() - cpu, time.perf_counter() - begin

    cpu, wall = step()
    return {"cpu": cpu, "wall": wall, "step": statistics.median(step()[0] for _ in range(STEPS))}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rows() -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", BEFORE, "python"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
        packages = {"before": f"{folder}/python", "now": str(Path(multigpu.__file__).parents[1])}
        for model in SIZES:
            yield _row(packages, model, 0, synchronized=False, package="now")
            for case in itertools.product(NUMBERS, (False, True), packages):
                yield _row(packages, model, *case)


def _row(packages: dict[str, str], model: str, num_replicas: int, synchronized: bool, package: str) -> dict:
    of_tests = os.environ.get("PYTHONPATH", "")
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join([packages[package], of_tests])):
        case = {"model": model, "num_replicas": num_replicas, "synchronized": synchronized}
        return {**case, "package": package, **in_own_process(__file__, **case)}


def table(rows: list[dict]) -> str:
    head = ["model", "N", "BatchNormalization", "÷ one device, before", "now", "CPU s, before", "now", "wall s, before"]
    head += ["now", "a step, before", "now"]
    plain = {row["model"]: row for row in rows if not row["num_replicas"]}
    lines = [
        _line(row["model"], "one device", "", {"now": row}, lambda x: x["cpu"] / x["cpu"]) for row in plain.values()
    ]
    cases = {(row["model"], row["num_replicas"], row["synchronized"]): None for row in rows if row["num_replicas"]}
    for case in cases:
        found = {r["package"]: r for r in rows if (r["model"], r["num_replicas"], r["synchronized"]) == case}
        one = plain[case[0]]["cpu"]
        lines.append(
            _line(*case[:2], "synchronized" if case[2] else "of slices", found, lambda x, one=one: x["cpu"] / one)
        )
    return f"{markdown_table(head, lines)}\n\n{NOTE}\n"


def _line(model: str, number: object, statistics_of: str, found: dict[str, dict], ratio: Callable) -> list:
    """One line: a pair of numbers for each measure, before and now."""
    pairs = [
        (ratio, ".2f"),
        *((lambda x, name=name: x[name], ".2f" if name == "step" else ".0f") for name in _MEASURES),
    ]
    numbers = [f"{of(found[p]):{how}}" if p in found else "–" for of, how in pairs for p in ("before", "now")]
    return [model, number, statistics_of, *numbers]


_MEASURES = ("cpu", "wall", "step")

if __name__ == "__main__":
    run_script(measure, rows, table)
