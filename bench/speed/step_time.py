"""CPU seconds per training step: one device, and this package and its peers on the same devices.

All are measured in one process, in turn, on logical CPU devices with one thread per op; each figure is the median of
the process's CPU seconds, so that a busy machine counts less. Run it with `python bench/speed/step_time.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import time
from collections.abc import Callable, Iterator, Sequence

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import STRATEGIES, make
from bench.lib.subprocess_metrics import in_own_process, in_turn, run_script
from bench.lib.workloads import WORKLOADS, Workload

ROUNDS = 5
OF_ALL, OF_OURS = (2, 4, 8), (16, 32)  # replicas: with so many, only ours
CASES = [
    *((workload, n) for workload in ("conv net", "MLP 4×1024") for n in (*OF_ALL, *OF_OURS)),
    ("wide model", 8),
]


def measure(workload: str, num_replicas: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Median CPU milliseconds per step of each strategy."""
    multigpu.simulate_gpus(num_replicas)
    strategies = STRATEGIES[:2] if num_replicas in OF_OURS else STRATEGIES
    return step_times(WORKLOADS[workload], strategies, rounds, time.process_time)


def step_times(
    workload: Workload, strategies: Sequence[str], rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Median milliseconds per step of `fit`, by a clock, of the strategies in turn."""
    batches, steps = workload.batches(), workload.steps
    models = {strategy: make(strategy, workload) for strategy in strategies}

    def milliseconds(strategy: str) -> float:
        begin = clock()
        models[strategy].fit(batches, verbose=0)
        return (clock() - begin) / steps * 1000

    for strategy in strategies:  # traces
        milliseconds(strategy)
    return in_turn({strategy: lambda strategy=strategy: milliseconds(strategy) for strategy in strategies}, rounds)


def rows() -> Iterator[dict]:
    for workload, num_replicas in CASES:
        yield {
            "workload": workload,
            "N": num_replicas,
            "ms": in_own_process(__file__, workload=workload, num_replicas=num_replicas),
        }


def table(rows: list[dict]) -> str:
    peers = STRATEGIES[1:]
    head = ["workload", "N", "one device, CPU ms", *(f"{strategy} ÷ one device" for strategy in peers)]
    lines = []
    for row in rows:
        one = row["ms"]["one device"]
        ratios = [f"{row['ms'][strategy] / one:.2f}" if strategy in row["ms"] else "–" for strategy in peers]
        lines.append([row["workload"], row["N"], f"{one:.0f}", *ratios])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
