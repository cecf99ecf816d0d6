"""What `fit` costs per step on a model of 10 parameters, where there is nothing to compute: the price of two devices.

Run `python bench/tiny_model.py`.
"""

import time
from collections.abc import Iterator

import multigpu
from process import in_own_process, markdown, run_script
from step_time import step_times
from ways import WAYS
from works import WORKS

ROUNDS = 9
CLOCKS = {"CPU": time.process_time, "wall": time.perf_counter}


def measure(clock: str, num_replicas: int = 2) -> dict[str, float]:
    """Median milliseconds per step of each way."""
    multigpu.simulate_gpus(num_replicas)
    return step_times(WORKS["10 parameters"], WAYS, ROUNDS, CLOCKS[clock])


def rows() -> Iterator[dict]:
    for clock in CLOCKS:
        yield {"clock": clock, "ms": in_own_process(__file__, clock=clock)}


def table(rows: list[dict]) -> str:
    peers = WAYS[1:]
    head = ["clock", "one device, ms per step", *(f"{way} ÷ one device" for way in peers)]
    lines = []
    for row in rows:
        one = row["ms"]["one device"]
        lines.append([row["clock"], f"{one:.2f}", *(f"{row['ms'][way] / one:.2f}" for way in peers)])
    return markdown(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
