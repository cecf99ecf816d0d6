"""CPU seconds per training step: one device, this package, MirroredStrategy and the old algorithm on the same devices.

All are measured in one process, in turn, on logical CPU devices with one thread per op; each figure is the median of
the process's CPU seconds, so that a busy machine counts less. Run it with `python bench/step_time.py`.
"""

import time
from collections.abc import Callable, Iterator

import multigpu
from process import in_own_process, in_turn, markdown, run_script
from ways import WAYS, make
from works import WORKS, Work

ROUNDS = 5
REPLICAS = (2, 4, 8)


def measure(work: str, num_replicas: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Median CPU milliseconds per step of each way."""
    multigpu.simulate_gpus(num_replicas)
    return step_times(WORKS[work], WAYS, rounds, time.process_time)


def step_times(work: Work, ways: tuple[str, ...], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median milliseconds per step of `fit`, by a clock, of the ways in turn."""
    batches, steps = work.batches(), work.steps
    models = {way: make(way, work) for way in ways}

    def milliseconds(way: str) -> float:
        begin = clock()
        models[way].fit(batches, verbose=0)
        return (clock() - begin) / steps * 1000

    for way in ways:  # traces
        milliseconds(way)
    return in_turn({way: lambda way=way: milliseconds(way) for way in ways}, rounds)


def rows() -> Iterator[dict]:
    for work in ("conv net", "MLP 4×1024"):
        for num_replicas in REPLICAS:
            yield {
                "work": work,
                "N": num_replicas,
                "ms": in_own_process(__file__, work=work, num_replicas=num_replicas),
            }


def table(rows: list[dict]) -> str:
    peers = WAYS[1:]
    head = ["work", "N", "one device, CPU ms", *(f"{way} ÷ one device" for way in peers)]
    lines = []
    for row in rows:
        one = row["ms"]["one device"]
        lines.append([row["work"], row["N"], f"{one:.0f}", *(f"{row['ms'][way] / one:.2f}" for way in peers)])
    return markdown(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
