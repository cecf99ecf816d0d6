"""Loading a model from an HDF5 file with Adam's state: with stock Keras, as a trusted and as an untrusted file.

Run `python bench/speed/trusted_files.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import resource
import tempfile
import time
from collections.abc import Callable, Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script

ROUNDS = 5
MODELS = {
    "15 weights": lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]),
    "Xception": lambda: keras.applications.Xception(weights=None),
}
LOADERS = {
    "stock Keras": keras.saving.load_model,
    "safe_mode=False": lambda path: multigpu.load_model_hdf5(path, safe_mode=False),
    "safe_mode=True": multigpu.load_model_hdf5,
}
NOTE = """

Stock Keras does not restore the optimizer's state from HDF5: its two variables are the number of steps and the learning
rate. This package restores all variables, so some of its CPU seconds are work that stock Keras does not do."""


def measure(model: str) -> dict[str, dict[str, float]]:
    """For each loader, the least wall and CPU seconds of rounds in which they take turns, and what it restores."""
    template = MODELS[model]()
    template.compile(optimizer="adam", loss="mse")
    template.optimizer.build(template.trainable_variables)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        multigpu.save_model_hdf5(template, path)
        rounds = [{name: _load(loader, path) for name, loader in LOADERS.items()} for _ in range(ROUNDS)]
    return {name: {key: min(each[name][key] for each in rounds) for key in rounds[0][name]} for name in LOADERS}


def _load(loader: Callable[[Path], keras.Model], path: Path) -> dict[str, float]:
    """One load; the CPU seconds are those of this process and of the processes that it starts."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    model = loader(path)
    wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
    return {"wall": wall, "cpu": cpu, "optimizer variables": len(model.optimizer.variables)}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def rows() -> Iterator[dict]:
    for model in MODELS:
        yield {"model": model, "loaders": in_own_process(__file__, model=model)}


def table(rows: list[dict]) -> str:
    head = ["model", "loader", "s", "CPU s", "CPU s ÷ stock Keras", "optimizer variables"]
    lines = []
    for row in rows:
        stock = row["loaders"]["stock Keras"]
        for name, loaded in row["loaders"].items():
            seconds = [f"{loaded[clock]:.2f}" for clock in ("wall", "cpu")]
            ratio = f"{loaded['cpu'] / stock['cpu']:.2f}"
            lines.append([row["model"], name, *seconds, ratio, loaded["optimizer variables"]])
    return markdown_table(head, lines) + NOTE


if __name__ == "__main__":
    run_script(measure, rows, table)
