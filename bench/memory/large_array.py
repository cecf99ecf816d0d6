"""`fit` from R against `fit` from Python on one array of 1,000 × 224 × 224 × 3 doubles: wall time and peak memory.

Each is a process of its own, and they take turns. Memory is what the process has at its peak above what it has when
the array is there and the model has taken one step, as a share of the array.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import json
import os
import statistics
import subprocess
from collections.abc import Iterator

from bench.lib.markdown_table import markdown_table

HERE = Path(__file__).parent
ROUNDS = 3
ENVIRONMENT = {**os.environ, "RETICULATE_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "3"}
ROOT = HERE.parents[1]
LIBRARY = ROOT / ".venv" / "r"


def measured(command: list) -> dict:
    environment = {**ENVIRONMENT, "R_LIBS": os.pathsep.join([str(LIBRARY), os.environ.get("R_LIBS", "")])}
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment, **quiet)
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def rows() -> Iterator[dict]:
    """Medians of each language over rounds in which they take turns; ratios to Python within a round."""
    commands = {
        "Python": [sys.executable, HERE / "large_array_fit.py"],
        "R": ["Rscript", HERE / "large_array_fit.R"],
    }
    rounds = [{language: measured(command) for language, command in commands.items()} for _ in range(ROUNDS)]
    for language in commands:
        keys = ("seconds", "cpu", "share")
        medians = {key: statistics.median(each[language][key] for each in rounds) for key in keys}
        ratios = {
            f"{key} ÷ Python": statistics.median(each[language][key] / each["Python"][key] for each in rounds)
            for key in ("seconds", "cpu")
        }
        yield {"language": language, **medians, **ratios}


def table(rows: list[dict]) -> str:
    head = ["`fit` from", "seconds", "÷ Python", "CPU seconds", "÷ Python", "extra memory ÷ array"]
    keys = ["seconds", "seconds ÷ Python", "cpu", "cpu ÷ Python", "share"]
    return markdown_table(head, [[row["language"], *(f"{row[key]:.2f}" for key in keys)] for row in rows])


if __name__ == "__main__":
    print(table(list(rows())))
