"""Kills or stops a worker at a random step, 20 times in one training that is resumed each time, and compares its end.

Every time, the other workers have to end by themselves with an error that names it. In the end the weights have to be
those of a training on one device that nobody interrupted. Two and three workers take turns. Run it with
`python bench/training/worker_faults.py`; it takes six minutes.
"""

import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.extend(
    str(Path(__file__).parents[2] / folder) for folder in ("", "tests/support", "tests/engines/tensorflow/multi_worker")
)

import numpy as np

from bench.lib.markdown_table import markdown_table

TIMES = 20
EPOCHS = 2 * TIMES
STEPS = 4  # of an epoch
LIMIT = 120  # seconds for all others to end
ENVIRON = {"MULTIGPU_ANSWER_SECONDS": "6"}


def interrupted(backup: str, epoch: int, workers: int, chance: random.Random) -> dict:
    """One interruption: what was done to whom, how long the others took to end, and whether they named it."""
    from worker_processes import Started  # of the tests

    lost, batch = chance.randrange(workers), chance.randrange(STEPS)
    which = chance.choice([signal.SIGKILL, signal.SIGSTOP])
    begin = time.monotonic()
    with Started(
        "runs", "resumable", backup, [lost, epoch, which, batch], 1, EPOCHS, processes=workers, **ENVIRON
    ) as started:
        others = [number for number in range(workers) if number != lost]
        codes = [started.exit_code(number, LIMIT) for number in others]
        named = [f"worker {lost} at 127.0.0.1:" in started.printed(number) for number in others]
        seconds = time.monotonic() - begin
    return {
        "signal": which.name,
        "workers": workers,
        "lost": lost,
        "step": epoch * STEPS + batch,
        "seconds": seconds,
        "named": codes == [1] * len(others) and all(named),
    }


def rows() -> Iterator[dict]:
    from runs import resumable  # of the tests
    from worker_processes import Started

    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as backup:
        for time_of_20 in range(TIMES):
            yield interrupted(backup, 2 * time_of_20 + 1, 2 + time_of_20 % 2, chance)
        with Started("runs", "resumable", backup, None, 1, EPOCHS) as started:
            ends = started.results()
    expected = resumable(None, gpus=None, epochs=EPOCHS)
    difference = max(float(np.abs(a - b).max()) for end in ends for a, b in zip(end, expected, strict=True))
    yield {"difference": difference}


def table(rows: list[dict]) -> str:
    times = [row for row in rows if "signal" in row]
    lines = []
    for which in ("SIGKILL", "SIGSTOP"):
        of_kind = [row for row in times if row["signal"] == which]
        if not of_kind:  # in the first rows
            continue
        seconds = [row["seconds"] for row in of_kind]
        lines.append(
            [
                which,
                len(of_kind),
                sum(row["named"] for row in of_kind),
                f"{statistics.median(seconds):.0f}",
                f"{max(seconds):.0f}",
            ]
        )
    head = ["signal", "times", "named by all others", "median s from start to the end of all others", "at most"]
    ends = [
        f"Largest difference of a weight from a training without interruptions: {row['difference']:.1e}."
        for row in rows
        if "difference" in row
    ]
    return "\n\n".join([markdown_table(head, lines), *ends])


if __name__ == "__main__":
    print(table([print(row, flush=True) or row for row in rows()]))
