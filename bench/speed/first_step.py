"""Seconds to the first step and peak memory of Xception on 71×71 images, batch 16, Adam, with 8 replicas.

Each is measured in a process of its own, since peak memory is the process's; one device and this package take turns,
three times. Run `python bench/speed/first_step.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import resource
import statistics
import time
from collections.abc import Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import make
from bench.lib.subprocess_metrics import in_own_process, medians, run_script
from bench.lib.workloads import WORKLOADS

STEPS, NUM_REPLICAS = 3, 8
NUMBERS = ["made", "first", "step", "peak"]
ORDER = ["one device", "multigpu", "MirroredStrategy", *["one device", "multigpu"] * 2, "Keras 2 algorithm"]


def measure(strategy: str, num_replicas: int = NUM_REPLICAS) -> dict[str, float]:
    """Seconds to make the model, to the end of the first step, CPU seconds of a later one, and peak memory in GB."""
    multigpu.simulate_gpus(num_replicas)
    begin = time.perf_counter()
    model = make(strategy, WORKLOADS["Xception"], keras.optimizers.Adam)
    made = time.perf_counter() - begin
    x, y = WORKLOADS["Xception"].arrays(1)
    begin = time.perf_counter()
    model.train_on_batch(x, y)
    first = time.perf_counter() - begin
    steps = []
    for _ in range(STEPS):
        begin = time.process_time()
        model.train_on_batch(x, y)
        steps.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"made": made, "first": first, "step": statistics.median(steps), "peak": peak}


def rows() -> Iterator[dict]:
    for strategy in ORDER:
        yield {"strategy": strategy, **in_own_process(__file__, strategy=strategy)}


def table(rows: list[dict]) -> str:
    head = ["strategy", "runs", "s to make the model", "s to the first step", "CPU s per step", "peak memory, GB"]
    lines = []
    for strategy, row in medians(rows, NUMBERS).items():
        runs = sum(other["strategy"] == strategy for other in rows)
        numbers = [f"{row['made']:.1f}", f"{row['first']:.1f}", f"{row['step']:.2f}", f"{row['peak']:.2f}"]
        lines.append([strategy, runs, *numbers])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
