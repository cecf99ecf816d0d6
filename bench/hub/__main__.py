"""Do all models of keras-hub and keras.applications train on 3 devices as on one? `make test-hub`.

    python bench/hub --write                               # all of them, and the page of what was found
    python bench/hub --only Gemma SAM --limit 600          # those whose names begin so, or of which a part does
    python bench/hub --rows rows.jsonl                     # one that can be ended, and goes on when run again
    python bench/hub --rows rows.jsonl --page --write      # the page of what is known so far

Two processes (`--processes`) work side by side, each with a few models. One that dies, or takes too long, is told as
what became of the model it was at, and another goes on. Nothing is downloaded: weights are random.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from bench.hub.page import write_page

PACKAGES = ("keras", "keras-hub")
WORKER = Path(__file__).parent / "worker.py"
AT_A_TIME = 6  # models of one process: it takes as long to start as to try a model


def main() -> None:
    arguments = parsed()
    known = {row["model"]: row for row in read(arguments.rows)}
    names = [name for name in listed() if chosen(name, arguments.only)]
    to_do = [] if arguments.page else [name for name in names if name not in known]
    chunks = [to_do[first : first + AT_A_TIME] for first in range(0, len(to_do), AT_A_TIME)]
    lock = threading.Lock()

    def work(chunk: Sequence[str]) -> None:
        for row in found(chunk, arguments.limit):
            with lock:
                known[row["model"]] = row
                print(json.dumps(row), flush=True)
                if arguments.rows:
                    with arguments.rows.open("a") as file:
                        file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(work, chunks))
    rows = [known.get(name, {"model": name, "verdict": "not run"}) for name in names]
    if arguments.write:
        engine = os.environ.get("KERAS_BACKEND", "tensorflow")
        write_page(rows, engine, ", ".join(f"{name} {version(name)}" for name in (*PACKAGES, engine)))
    sys.exit(any(row["verdict"].isupper() for row in rows))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one model")
    parser.add_argument("--processes", type=int, default=2, help="that work side by side")
    parser.add_argument("--rows", type=Path, help="file of what was found, a line for each model")
    parser.add_argument("--page", action="store_true", help="run nothing: for --write, of the rows that are known")
    parser.add_argument("--write", action="store_true", help="write bench/results/MODELS.md and models.json")
    return parser.parse_args()


def read(file: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []


def listed() -> list[str]:
    """The names of all models."""
    lines = subprocess.run([sys.executable, str(WORKER), "--list"], capture_output=True, text=True, check=True).stdout
    return json.loads(next(line for line in lines.splitlines() if line.startswith("LIST "))[5:])


def chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(part.startswith(beginning) for beginning in only for part in [name, *name.split("/")])


def found(names: Sequence[str], limit: float) -> Iterator[dict[str, Any]]:
    """What becomes of each of the models."""
    left = list(names)
    while left:
        for row in of_one_process(left, limit):
            left.remove(row["model"])
            yield row


def of_one_process(names: Sequence[str], limit: float) -> Iterator[dict[str, Any]]:
    """Rows of the models, up to the one, if any, with which their process ends."""
    process = subprocess.Popen(
        [sys.executable, str(WORKER), *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    at, last, late = names[0], [""], []

    def end() -> None:
        late.append(True)
        process.kill()

    alarm = threading.Timer(limit, end)
    alarm.start()
    num_found = 0
    for line in process.stdout:
        if line.startswith("BEGIN "):
            at = json.loads(line[6:])
            alarm.cancel()
            alarm = threading.Timer(limit, end)
            alarm.start()
        elif line.startswith("FOUND "):
            num_found += 1
            yield json.loads(line[6:])
        else:
            last.append(line.strip())
    process.wait()
    alarm.cancel()
    if num_found < len(names):
        why = f"more than {limit:.0f} s" if late else f"status {process.returncode}: {last[-1]}"
        yield {"model": at, "verdict": "too slow" if late else "CRASHES", "why": why}


if __name__ == "__main__":
    main()
