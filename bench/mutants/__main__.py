"""Mutation testing: makes small defects in the package, and lists those that no test notices. `python bench/mutants`.

    python bench/mutants --coverage                      # first: which test runs which line
    python bench/mutants --seed 0 --rows rows.jsonl      # 160 mutants; one that was ended goes on when run again
    python bench/mutants --seed 0 --before rows.jsonl    # a later suite: tries first what killed each of them then
    python bench/mutants --only weights --count 20       # of one room
    python bench/mutants --seed 0 --show                 # lists them, runs nothing

Mutants are drawn from every room. On each are tried the tests that run its line, those of its room first, until one of
them fails, up to five minutes of them; where no test in Python runs it, the tests in R. A survivor may be known to a
test that was not among these, such as one in which other processes run the line: try these by hand. General tools
(mutmut, cosmic-ray) start all tests anew for each mutant, or in forks of one process, in which TensorFlow does not
work.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from bench.mutants.kinds import Mutant, mutants
from bench.mutants.trials import ROOT, Coverage, Trials, measure_coverage

PACKAGE = Path("python/multigpu")
PROCESSES = 2


def main() -> None:
    arguments = parsed()
    if arguments.coverage:
        measure_coverage()
        return
    drawn = draw(arguments.seed, arguments.count, arguments.only)
    if arguments.show:
        print("\n".join(f"{number} {path}:{mutant.line} {mutant.kind}" for number, (path, mutant) in enumerate(drawn)))
        return
    rows_of = [row_of(number, *each) for number, each in enumerate(drawn)]
    known, before = answered(rows_of, arguments.rows), answered(rows_of, arguments.before)
    coverage, lock = Coverage(), threading.Lock()
    trials = [Trials(coverage) for _ in range(PROCESSES)]

    def run(number: int) -> dict:
        path, mutant = drawn[number]
        row = rows_of[number]
        with lock:
            mine = trials.pop()
        try:
            row |= mine.answer(path, mutant, before.get(number, {}).get("test", "").removeprefix("FAILED "))
        finally:
            trials.append(mine)
        with lock:
            print(json.dumps(row), flush=True)
            if arguments.rows:
                with arguments.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        return row

    with ThreadPoolExecutor(PROCESSES) as pool:
        rows = [*known.values(), *pool.map(run, [number for number in range(len(drawn)) if number not in known])]
    print(Counter(row["answer"] for row in rows))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coverage", action="store_true", help="run all tests, and note which one runs which line")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--only", help="a room")
    parser.add_argument("--rows", type=Path, help="file with the rows so far, which gets those to come")
    parser.add_argument("--before", type=Path, help="file with the rows of an earlier run, which say what to try first")
    parser.add_argument("--show", action="store_true", help="list the mutants")
    return parser.parse_args()


def draw(seed: int, count: int, only: str | None = None) -> list[tuple[Path, Mutant]]:
    """So many mutants: from all rooms by their size, at least two from each, and in a room of all kinds in turn."""
    rooms: dict[str, list[tuple[Path, Mutant]]] = {}
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT / PACKAGE)
        room = path.parts[0] if len(path.parts) > 1 else "top"
        if only in (None, room):
            rooms.setdefault(room, []).extend((path, mutant) for mutant in mutants(file.read_bytes()))
    total = sum(map(len, rooms.values()))
    drawn = []
    for room, found in rooms.items():
        share = max(2, round(count * len(found) / total))
        drawn += in_turn(found, random.Random(f"{seed} {room}"))[:share]
    return drawn


def in_turn(found: list[tuple[Path, Mutant]], chance: random.Random) -> list[tuple[Path, Mutant]]:
    """The mutants of a room in a random order, in which each kind has its turn."""
    of_kind: Counter[str] = Counter()
    turns = []
    for path, mutant in chance.sample(found, len(found)):
        turns.append((of_kind[mutant.kind], path, mutant))
        of_kind[mutant.kind] += 1
    return [(path, mutant) for _, path, mutant in sorted(turns, key=lambda turn: turn[0])]


def row_of(number: int, path: Path, mutant: Mutant) -> dict:
    """What a mutant is: its row, without an answer."""
    return {"number": number, "file": str(path), "line": mutant.line, "kind": mutant.kind}


def answered(rows: list[dict], file: Path | None) -> dict[int, dict]:
    """The rows that have an answer in a file, by number; not those of mutants that are others by now."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    found = {row["number"]: row for row in map(json.loads, lines)}
    return {row["number"]: found[row["number"]] for row in rows if row.items() <= found.get(row["number"], {}).items()}


if __name__ == "__main__":
    main()
