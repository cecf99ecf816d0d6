"""`fit` from R against `fit` from Python on one array of 1,000 × 224 × 224 × 3 doubles: wall time and peak memory.

Each is a process of its own, and they take turns. Memory is what the process has at its peak above what it has when
the array is there and the model has taken one step, as a share of the array.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from process import markdown

HERE = Path(__file__).parent
ROUNDS = 3
ENVIRONMENT = {**os.environ, "RETICULATE_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "3"}
LIBRARY = HERE.parent / ".venv" / "r"


def measured(command: list) -> dict:
    environment = {**ENVIRONMENT, "R_LIBS": os.pathsep.join([str(LIBRARY), os.environ.get("R_LIBS", "")])}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def rows() -> Iterator[dict]:
    """Medians of each way over rounds in which they take turns; ratios to Python within a round."""
    ways = {
        "Python": [sys.executable, HERE / "large_array_fit.py"],
        "R": ["Rscript", HERE / "large_array_fit.R"],
    }
    rounds = [{way: measured(command) for way, command in ways.items()} for _ in range(ROUNDS)]
    for way in ways:
        medians = {key: statistics.median(each[way][key] for each in rounds) for key in ("seconds", "cpu", "share")}
        ratios = {
            f"{key} ÷ Python": statistics.median(each[way][key] / each["Python"][key] for each in rounds)
            for key in ("seconds", "cpu")
        }
        yield {"way": way, **medians, **ratios}


def table(rows: list[dict]) -> str:
    head = ["`fit` from", "seconds", "÷ Python", "CPU seconds", "÷ Python", "extra memory ÷ array"]
    keys = ["seconds", "seconds ÷ Python", "cpu", "cpu ÷ Python", "share"]
    return markdown(head, [[row["way"], *(f"{row[key]:.2f}" for key in keys)] for row in rows])


if __name__ == "__main__":
    print(table(list(rows())))
