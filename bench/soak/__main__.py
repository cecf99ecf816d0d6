"""An hour and a half of trouble: random models, kills, mutated files, long runs, workers. `make soak` runs it.

    python bench/soak --seed 3                                       # all of it
    python bench/soak --share 0.03                                   # a short one
    python bench/soak --seed 3 --only trainings --first 17 --count 1   # model 17 of seed 3 alone
    python bench/soak --seed 3 --rows rows.jsonl                     # one that can be ended, and goes on when run again
    KERAS_BACKEND=jax python bench/soak --only trainings             # random models on the engine on JAX

Two processes work side by side. One that dies, or hangs, is told as the failure of what it was at, and another goes on
with what is next. `--write` writes what was found into `bench/results/soak.json` and `bench/results/RESULTS.md`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.soak.section import CAMPAIGNS, GOOD, summary

HERE = Path(__file__).parent
PROCESSES = 2
HANGS = 1200  # seconds for one row
CHUNKS = {
    "trainings": 50,
    "groups": 50,
    "kills": 50,
    "mutated_files": 500,
    "memory": 1,
    "workers": 5,
}  # rows of one process


def main() -> None:
    arguments = parsed()
    begin, found = time.perf_counter(), {name: [] for name in arguments.only}
    known = Known(arguments.rows)
    with ThreadPoolExecutor(PROCESSES) as pool:
        for name, rows in pool.map(lambda job: (job[0], list(rows_of(*job, arguments, known))), jobs(arguments)):
            found[name] += rows
    seconds = time.perf_counter() - begin
    campaigns = {name: summary(name, rows) for name, rows in found.items()}
    print(json.dumps({name: campaign["answers"] for name, campaign in campaigns.items()}), f"in {seconds:.0f} s")
    if arguments.write:
        settings = {"seed": arguments.seed, "without": arguments.without, "resumed": known.resumed}
        write({**settings, "seconds": seconds, "campaigns": campaigns})
    sys.exit(any(campaign["failures"] for campaign in campaigns.values()))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another one gives other models, moments and files")
    parser.add_argument("--only", nargs="+", choices=list(CAMPAIGNS), default=list(CAMPAIGNS))
    parser.add_argument("--first", type=int, default=0, help="number of the first row")
    parser.add_argument("--count", type=int, help="rows of each campaign, in place of all")
    parser.add_argument("--share", type=float, default=1.0, help="of the rows, and of the long runs")
    parser.add_argument("--without", nargs="*", default=[], help="kinds of models or files to leave out")
    parser.add_argument(
        "--rows", type=Path, help="file with the rows of a run that was ended, which gets those to come"
    )
    parser.add_argument("--write", action="store_true", help="write the figures into bench/results/RESULTS.md")
    return parser.parse_args()


def jobs(arguments: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Campaign, first row and rows of each process; the campaigns take turns, so that all have begun early."""
    of_campaigns = []
    for name in arguments.only:
        share = 1 if name == "memory" else arguments.share  # whose runs are shorter, not fewer
        end = arguments.first + (arguments.count or max(1, round(CAMPAIGNS[name] * share)))
        starts = range(arguments.first, min(end, CAMPAIGNS[name]) if name == "memory" else end, CHUNKS[name])
        of_campaigns += [
            (place / len(starts), (name, start, min(CHUNKS[name], end - start))) for place, start in enumerate(starts)
        ]
    return [job for _, job in sorted(of_campaigns)]


class Known:
    """The rows in a file, if there is one: one line of JSON each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.resumed = bool(lines)
        self._rows = {(campaign, row["number"]): row for campaign, row in map(json.loads, lines)}

    def get(self, name: str, number: int) -> dict[str, Any] | None:
        """A row that is known."""
        return self._rows.get((name, number))

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Writes a row down."""
        if self._path:
            with self._lock, self._path.open("a") as file:
                file.write(json.dumps([name, row], ensure_ascii=False) + "\n")


def rows_of(name: str, first: int, count: int, arguments: argparse.Namespace, known: Known) -> Iterator[dict[str, Any]]:
    """The rows of one job: those that are known, and those that are run."""
    number, end = first, first + count
    while number < end:
        row = known.get(name, number)
        if row is not None:
            yield row
            number += 1
            continue
        unknown = next((n for n in range(number, end) if known.get(name, n) is not None), end)
        for row in run(name, number, unknown - number, arguments):
            known.add(name, row)
            yield row
        number = unknown


def run(name: str, first: int, count: int, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of one job, by as many processes as it takes."""
    end = first + count
    while first < end:
        with tempfile.TemporaryFile("w+") as errors:
            why = ""
            for row in rows_of_process(name, first, end - first, arguments, errors):
                if row["answer"] not in GOOD[name]:
                    print(f"{name} {row['number']}: {json.dumps(row, ensure_ascii=False)}", flush=True)
                first = row["number"] + 1
                yield row
            errors.seek(0)
            why = errors.read()[-1500:]
        if first < end:
            print(f"{name} {first}: died\n{why}", flush=True)
            yield {"number": first, "answer": "died", "why": why}
            first += 1


def rows_of_process(
    name: str, first: int, count: int, arguments: argparse.Namespace, errors: Any
) -> Iterator[dict[str, Any]]:
    """The rows that one process gives until it ends, or is ended since it hangs."""
    given = {"seed": arguments.seed, "first": first, "count": count, "share": arguments.share}
    command = [sys.executable, str(HERE / "worker.py"), name]
    command += [text for option, value in given.items() for text in (f"--{option}", str(value))]
    process = subprocess.Popen(
        [*command, "--without", *arguments.without], stdout=subprocess.PIPE, stderr=errors, text=True
    )
    while True:
        watch = threading.Timer(HANGS, process.kill)
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            break
        yield json.loads(line)
    process.wait()


def write(figures: dict[str, Any]) -> None:
    """The figures, and the page that shows them beside those of the benchmarks."""
    from bench.lib.report import SOAK, environment  # which imports TensorFlow

    SOAK.write_text(json.dumps({**figures, "environment": environment()}, indent=1, ensure_ascii=False))
    subprocess.run([sys.executable, str(HERE.parent / "lib" / "report.py"), "--only"], check=True)


if __name__ == "__main__":
    main()
