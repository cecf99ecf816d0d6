"""Runs all benchmarks and writes `bench/RESULTS.md`: their tables, with machine, versions and date."""

import datetime
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = {
    "step_time.py": "CPU seconds per training step",
    "first_step.py": "Time to the first step, and peak memory",
    "embedding.py": "Large embedding tables",
    "large_array.py": "`fit` from R on an array of 1,000 × 224 × 224 × 3 doubles",
}
NOTES = """\
Devices are logical CPU devices of one machine, with one thread per op, so a ratio of 1 means that spreading the work
costs nothing; speed-up shows on devices that work at the same time. CPU seconds are those of the process, medians over
several rounds in which the ways take turns. No GPU was at hand.
"""


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "CPU")
    packages = ", ".join(f"{name} {version(name)}" for name in ("tensorflow", "keras", "numpy"))
    return f"{os.cpu_count()} cores of {model}; Python {platform.python_version()}, {packages}"


def main() -> None:
    parts = [f"# Results\n\n{datetime.date.today()}, {machine()}.\n\n{NOTES}"]
    for script, title in SCRIPTS.items():
        command = [sys.executable, HERE / script]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        parts.append(f"## {title}\n\n`python bench/{script}`\n\n{done.stdout.strip()}\n")
        print(parts[-1], flush=True)
    (HERE / "RESULTS.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
