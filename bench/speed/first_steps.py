"""CPU seconds of the first step of deep models from `keras.applications`, on several devices and on one, batch 16.

Each is measured in a process of its own, with Adam also with the package as it was before its steps were optimized in
one round.
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
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script

BEFORE = "f26cf2c"  # the commit that is compared
SIZES = {"EfficientNetB0": 64, "DenseNet121": 64, "Xception": 71}
CASES = (((0, 2, 4, 8), "adam"), ((0, 8), "sgd"))  # numbers of replicas, and the optimizer
STEPS, BATCH = 5, 16
NOTE = (
    "÷ one device: CPU seconds of the first step of `fit`, with a model of random weights, divided by those of the "
    f"plain model on one device. Before: commit {BEFORE}. A step: CPU seconds of a later step. Other programs ran at "
    "the same time. On CPUs, Keras does not compile with XLA by default. With Adam, the plain model has a longer first "
    "step than with SGD."
)


def measure(model: str, num_replicas: int, synchronized: bool, optimizer: str) -> dict[str, float]:
    """CPU seconds of the first step, and of a later one; 0 replicas are the plain model."""
    multigpu.simulate_gpus(max(num_replicas, 1))
    size = SIZES[model]
    made = getattr(keras.applications, model)(weights=None, input_shape=(size, size, 3), classes=10)
    if synchronized:
        multigpu.synchronize_batch_norm(made)
    if num_replicas:
        made = multigpu.multi_gpu_model(made, gpus=num_replicas)
    made.compile(optimizer, "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).normal(size=(BATCH, size, size, 3)).astype("float32")

    def step() -> float:
        cpu = _cpu_seconds()
        made.fit(x, np.arange(BATCH) % 10, batch_size=BATCH, verbose=0)
        return _cpu_seconds() - cpu

    return {"cpu": step(), "step": statistics.median(step() for _ in range(STEPS))}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rows() -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", BEFORE, "python"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
        packages = {"before": f"{folder}/python", "now": str(Path(multigpu.__file__).parents[1])}
        for (numbers, optimizer), model in itertools.product(CASES, SIZES):
            for number, synchronized, package in itertools.product(numbers, (False, True), packages):
                plain = package == "now" and not synchronized
                if plain if not number else package == "now" or optimizer == "adam":
                    case = {
                        "model": model,
                        "num_replicas": number,
                        "synchronized": synchronized,
                        "optimizer": optimizer,
                    }
                    yield _row(packages, package, **case)


def _row(packages: dict[str, str], package: str, **case: Any) -> dict:
    of_tests = os.environ.get("PYTHONPATH", "")
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join([packages[package], of_tests])):
        return {**case, "package": package, **in_own_process(__file__, **case)}


def table(rows: list[dict]) -> str:
    head = ["model", "optimizer", "N", "BatchNormalization", "÷ one device, before", "now", "CPU s, before", "now"]
    head += ["a step, before", "now"]
    one = {(row["model"], row["optimizer"]): row["cpu"] for row in rows if not row["num_replicas"]}
    cases: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        case = row["model"], row["optimizer"], row["num_replicas"], row["synchronized"]
        cases.setdefault(case, {})[row["package"]] = row
    return f"{markdown_table(head, [_line(*case, found, one[case[:2]]) for case, found in cases.items()])}\n\n{NOTE}\n"


def _line(model: str, optimizer: str, number: int, synchronized: bool, found: dict[str, dict], one: float) -> list:
    """One line: a pair of numbers for each measure, before and now."""
    of = ("synchronized" if synchronized else "of slices") if number else ""
    measures = (lambda x: f"{x['cpu'] / one:.2f}", lambda x: f"{x['cpu']:.0f}", lambda x: f"{x['step']:.2f}")
    numbers = [of_row(found[p]) if p in found else "–" for of_row in measures for p in ("before", "now")]
    return [model, optimizer, number or "one device", of, *numbers]


if __name__ == "__main__":
    run_script(measure, rows, table)
