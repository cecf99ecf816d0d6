"""What `fit` costs per step on a model of 10 parameters, where there is nothing to compute: the price of two devices.

Run `python bench/speed/overhead.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import time
from collections.abc import Iterator

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import STRATEGIES
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS
from bench.speed.step_time import step_times

ROUNDS = 9
CLOCKS = {"CPU": time.process_time, "wall": time.perf_counter}


def measure(clock: str, num_replicas: int = 2) -> dict[str, float]:
    """Median milliseconds per step of each strategy."""
    multigpu.simulate_gpus(num_replicas)
    return step_times(WORKLOADS["10 parameters"], STRATEGIES, ROUNDS, CLOCKS[clock])


def rows() -> Iterator[dict]:
    for clock in CLOCKS:
        yield {"clock": clock, "ms": in_own_process(__file__, clock=clock)}


def table(rows: list[dict]) -> str:
    peers = STRATEGIES[1:]
    head = ["clock", "one device, ms per step", *(f"{strategy} ÷ one device" for strategy in peers)]
    lines = []
    for row in rows:
        one = row["ms"]["one device"]
        lines.append([row["clock"], f"{one:.2f}", *(f"{row['ms'][strategy] / one:.2f}" for strategy in peers)])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
