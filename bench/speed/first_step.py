"""Seconds to the first step and peak memory of Xception on 71×71 images, batch 16, Adam, with 8 replicas.

Each is measured in a process of its own, since peak memory is the process's; one device and this package take turns,
three times. Run `python bench/first_step.py`.
"""

import resource
import statistics
import time
from collections.abc import Iterator

import keras

import multigpu
from process import in_own_process, markdown, run_script
from ways import make
from works import WORKS

STEPS, NUM_REPLICAS = 3, 8
ORDER = ["one device", "multigpu", "MirroredStrategy", *["one device", "multigpu"] * 2, "old algorithm"]


def measure(way: str, num_replicas: int = NUM_REPLICAS) -> dict[str, float]:
    """Seconds to make the model, to the end of the first step, CPU seconds of a later one, and peak memory in GB."""
    multigpu.simulate_gpus(num_replicas)
    begin = time.perf_counter()
    model = make(way, WORKS["Xception"], keras.optimizers.Adam)
    made = time.perf_counter() - begin
    x, y = WORKS["Xception"].arrays(1)
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
    for way in ORDER:
        yield {"way": way, **in_own_process(__file__, way=way)}


def medians(rows: list[dict]) -> dict[str, dict[str, float]]:
    """For each way, the median of each number."""
    return {
        way: {
            name: statistics.median(row[name] for row in rows if row["way"] == way)
            for name in ("made", "first", "step", "peak")
        }
        for way in dict.fromkeys(row["way"] for row in rows)
    }


def table(rows: list[dict]) -> str:
    head = ["way", "runs", "s to make the model", "s to the first step", "CPU s per step", "peak memory, GB"]
    lines = []
    for way, row in medians(rows).items():
        runs = sum(other["way"] == way for other in rows)
        numbers = [f"{row['made']:.1f}", f"{row['first']:.1f}", f"{row['step']:.2f}", f"{row['peak']:.2f}"]
        lines.append([way, runs, *numbers])
    return markdown(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
