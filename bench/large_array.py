"""`fit` from R against `fit` from Python on one array of 1,000 × 224 × 224 × 3 doubles: wall time and peak memory.

Each is a process of its own, and they take turns. Memory is what the process has at its peak above what it has when
the array is there and the model has taken one step, as a share of the array.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 3
ENVIRONMENT = {**os.environ, "RETICULATE_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "3"}
LIBRARY = HERE.parent / ".venv" / "r"


def measured(command: list) -> dict:
    environment = {**ENVIRONMENT, "R_LIBS": os.pathsep.join([str(LIBRARY), os.environ.get("R_LIBS", "")])}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def main() -> None:
    ways = {
        "Python": [sys.executable, HERE / "large_array_fit.py"],
        "R": ["Rscript", HERE / "large_array_fit.R"],
    }
    runs = [{name: measured(command) for name, command in ways.items()} for _ in range(ROUNDS)]
    medians = {
        name: {key: statistics.median(run[name][key] for run in runs) for key in ("seconds", "cpu", "share")}
        for name in ways
    }
    print("| `fit` from | seconds | CPU seconds | extra memory ÷ array |\n|---|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median['seconds']:.1f} | {median['cpu']:.1f} | {median['share']:.2f} |")
    wall, cpu = (statistics.median(run["R"][key] / run["Python"][key] for run in runs) for key in ("seconds", "cpu"))
    print(f"\nR ÷ Python: {wall:.2f} of the seconds, {cpu:.2f} of the CPU seconds.")


if __name__ == "__main__":
    main()
