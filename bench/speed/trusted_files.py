"""Loading a model from an HDF5 file with Adam's state: as a stranger's, as trusted, and by stock Keras."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import resource
import tempfile
import time
from collections.abc import Iterator

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


def measure(model: str) -> dict[str, list[float]]:
    """Wall and CPU seconds of each loader and its subprocesses: the least of rounds in which they take turns."""
    template = MODELS[model]()
    template.compile(optimizer="adam", loss="mse")
    template.optimizer.build(template.trainable_variables)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        multigpu.save_model_hdf5(template, path)
        taken = [{name: _seconds(loader, path) for name, loader in LOADERS.items()} for _ in range(ROUNDS)]
    return {name: [min(each[name][clock] for each in taken) for clock in (0, 1)] for name in LOADERS}


def _seconds(loader, path) -> tuple[float, float]:
    began = time.perf_counter(), _cpu_seconds()
    loader(path)
    return time.perf_counter() - began[0], _cpu_seconds() - began[1]


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def rows() -> Iterator[dict]:
    for model in MODELS:
        yield {"model": model, "seconds": in_own_process(__file__, model=model)}


def table(rows: list[dict]) -> str:
    peers = list(LOADERS)[1:]
    units = ("s", "CPU s", "CPU s ÷ stock")
    head = ["model", "stock Keras, s", "CPU s", *(f"{loader}, {unit}" for loader in peers for unit in units)]
    lines = []
    for row in rows:
        seconds = row["seconds"]
        line = [row["model"], *(f"{each:.2f}" for each in seconds["stock Keras"])]
        for loader in peers:
            ratio = seconds[loader][1] / seconds["stock Keras"][1]
            line += [*(f"{each:.2f}" for each in seconds[loader]), f"{ratio:.2f}"]
        lines.append(line)
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
