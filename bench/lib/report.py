"""Runs all benchmarks and writes `bench/RESULTS.md` with plots; what is measured so far is written as it comes.

`--only NAME ...` measures these anew and keeps the other measurements, `--only` alone only writes the pages anew.
"""

import argparse
import datetime
import importlib
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import tensorflow as tf

import figures
import plots
from soak.section import section

HERE = Path(__file__).parent
MEASURED = HERE / "measured.json"
SOAK = HERE / "soak.json"  # what `make soak` found
TITLES = {
    "speedup": "Wall time on two cores",
    "step_time": "CPU seconds per training step",
    "tiny_model": "`fit` on 10 parameters",
    "embedding": "CPU ms per step with large embedding tables",
    "balance": "Owners of Xception's weights on 8 devices",
    "transfers": "What travels in a step",
    "first_step": "Xception, 8 replicas, batch 16: time to the first step, and peak memory",
    "estimated_memory": "Memory that rows take in training, estimated and measured",
    "minigooglenet": "MiniGoogLeNet, the benchmark of a tutorial of 2017",
    "several_workers": "Several workers on one machine's loopback",
    "kill_workers": "Workers killed or stopped at random steps, and training resumed",
    "trusted_files": "Loading a model, trusted or not",
    "large_array": "`fit` from R on an array of 1,000 × 224 × 224 × 3 doubles",
}
NOTES = """\
Devices are logical CPU devices of one machine, with one thread per op, so a ratio of 1 means that spreading the work
costs nothing; speed-up shows on devices that work at the same time. CPU seconds are those of the process, medians over
rounds in which the ways take turns. MirroredStrategy and the old algorithm (replicas read the shared variables, nothing
is packed: [old_algorithm.py](old_algorithm.py)) have the same devices and data.
"""


def environment() -> dict[str, str]:
    """Where and when a benchmark ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "CPU")
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    return {
        "date": str(datetime.date.today()),
        "machine": f"{os.cpu_count()} cores of {model}",
        "versions": ", ".join(
            [
                f"Python {platform.python_version()}",
                *(f"{name} {version(name)}" for name in ("tensorflow", "keras", "numpy")),
            ]
        ),
        "gpus": ", ".join(gpu.get("device_name", "GPU") for gpu in gpus),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def measure(name: str, measured: dict) -> str | None:
    """Adds the rows of a benchmark one by one; what goes wrong is told and keeps nothing else from being measured."""
    begin, rows = time.perf_counter(), []
    benchmark = importlib.import_module(name)
    measured["environment"][name] = environment()
    measured["rows"][name] = rows
    try:
        for row in benchmark.rows():
            rows.append(row)
            write(measured)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return f"`{name}.py` stopped after {len(rows)} rows: {str(error).strip().splitlines()[-1]}"
    measured["environment"][name]["seconds"] = f"{time.perf_counter() - begin:.0f}"
    write(measured)
    print(f"## {TITLES[name]}\n\n{benchmark.table(rows)}\n", flush=True)
    return None


def write(measured: dict, failures: list[str] | None = None) -> None:
    """The measurements, and the page and the plots that show them."""
    MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False))
    (HERE / "RESULTS.md").write_text("\n".join(page(measured, failures or [])))


def page(measured: dict, failures: list[str]) -> list[str]:
    """Sections of the page."""
    rows = measured["rows"]
    gpus = next((where["gpus"] for where in measured["environment"].values() if where["gpus"]), "")
    parts = [
        "# Results\n",
        NOTES,
        f"GPUs: {gpus}.\n" if gpus else "No GPU was at hand: all figures are of CPU devices.\n",
    ]
    parts += [f"**{failure}**\n" for failure in failures]
    parts += ["## Figures to reach\n", figures.table(rows), ""]
    for name in (name for name in TITLES if rows.get(name)):
        benchmark, where = importlib.import_module(name), measured["environment"][name]
        seconds = f", {where['seconds']} s" if "seconds" in where else ""
        parts += [
            f"## {TITLES[name]}\n",
            f"`python bench/{name}.py`: {where['date']}, {where['machine']}, {where['versions']}, load of the machine "
            f"before {where['load']}{seconds}.\n",
            f"{benchmark.table(rows[name])}\n",
        ]
        plot = plots.save(name, rows[name], HERE)
        if plot is not None:
            parts.append(f"![{TITLES[name]}]({plot.name})\n")
    return [*parts, section(json.loads(SOAK.read_text()))] if SOAK.exists() else parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(TITLES), help="measure these, and keep what there is")
    only = parser.parse_args().only
    empty = {"environment": {}, "rows": {}}
    measured = empty if only is None or not MEASURED.exists() else json.loads(MEASURED.read_text())
    failures = [measure(name, measured) for name in (TITLES if only is None else only)]
    failures = [failure for failure in failures if failure]
    write(measured, failures)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
