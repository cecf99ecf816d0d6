"""Wall time of the conv net: 2 replicas on 2 cores against one single-threaded device on 1 core.

Both are in one process and take turns; the process's threads are bound to one core or to two before each turn.
Needs a quiet machine. Run `python bench/speedup.py`.
"""

import os
import time
from collections.abc import Iterator

import multigpu
from process import in_own_process, in_turn, markdown, run_script
from ways import make
from works import WORKS

ROUNDS = 7
CORES = {"one device": 1, "multigpu": 2}


def measure(work: str = "conv net") -> dict[str, float]:
    """Median wall milliseconds per step of each way."""
    multigpu.simulate_gpus(2)
    available = sorted(os.sched_getaffinity(0))
    models = {way: make(way, WORKS[work]) for way in CORES}
    batches = WORKS[work].batches()

    def milliseconds(way: str) -> float:
        bind_threads(set(available[: CORES[way]]))
        begin = time.perf_counter()
        models[way].fit(batches, verbose=0)
        return (time.perf_counter() - begin) / WORKS[work].steps * 1000

    for way in CORES:  # traces
        milliseconds(way)
    return in_turn({way: lambda way=way: milliseconds(way) for way in CORES}, ROUNDS)


def bind_threads(cores: set[int]) -> None:
    """Lets all threads of this process run on these cores only; threads made later inherit it."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def rows() -> Iterator[dict]:
    load = os.getloadavg()[0]  # of others, since this waits for its own process
    yield {"work": "conv net", "load": load, "cores": os.cpu_count(), "ms": in_own_process(__file__)}


def table(rows: list[dict]) -> str:
    head = ["work", "one device on 1 core, ms per step", "2 replicas on 2 cores", "speed-up", "load before"]
    lines = []
    for row in rows:
        one, two = row["ms"]["one device"], row["ms"]["multigpu"]
        lines.append([row["work"], f"{one:.0f}", f"{two:.0f}", f"{one / two:.2f}", f"{row['load']:.1f}"])
    return markdown(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
