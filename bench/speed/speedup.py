"""Wall time of the conv net: 2 replicas on 2 cores against one single-threaded device on 1 core.

Both are in one process and take turns; the process's threads are bound to one core or to two before each turn.
Needs a quiet machine. Run `python bench/speed/speedup.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import os
import time
from collections.abc import Iterator

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import make
from bench.lib.subprocess_metrics import in_own_process, in_turn, run_script
from bench.lib.workloads import WORKLOADS

ROUNDS = 7
CORES = {"one device": 1, "multigpu": 2}


def measure(workload: str = "conv net") -> dict[str, float]:
    """Median wall milliseconds per step of each strategy."""
    multigpu.simulate_gpus(2)
    available = sorted(os.sched_getaffinity(0))
    models = {strategy: make(strategy, WORKLOADS[workload]) for strategy in CORES}
    batches = WORKLOADS[workload].batches()

    def milliseconds(strategy: str) -> float:
        bind_threads(set(available[: CORES[strategy]]))
        begin = time.perf_counter()
        models[strategy].fit(batches, verbose=0)
        return (time.perf_counter() - begin) / WORKLOADS[workload].steps * 1000

    for strategy in CORES:  # traces
        milliseconds(strategy)
    return in_turn({strategy: lambda strategy=strategy: milliseconds(strategy) for strategy in CORES}, ROUNDS)


def bind_threads(cores: set[int]) -> None:
    """Lets all threads of this process run on these cores only; threads made later inherit it."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def rows() -> Iterator[dict]:
    load = os.getloadavg()[0]  # of others, since this waits for its own process
    yield {"workload": "conv net", "load": load, "cores": os.cpu_count(), "ms": in_own_process(__file__)}


def table(rows: list[dict]) -> str:
    head = ["workload", "one device on 1 core, ms per step", "2 replicas on 2 cores", "speed-up", "load before"]
    lines = []
    for row in rows:
        one, two = row["ms"]["one device"], row["ms"]["multigpu"]
        lines.append([row["workload"], f"{one:.0f}", f"{two:.0f}", f"{one / two:.2f}", f"{row['load']:.1f}"])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
