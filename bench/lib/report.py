"""Runs all benchmarks and writes `bench/results/RESULTS.md` with plots, anew after each row that is measured.

`python bench/lib/report.py` runs them all. `--only NAME ...` measures these and keeps the other measurements; `--only`
alone measures nothing and writes the page.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import datetime
import importlib
import json
import os
import platform
import time
from importlib.metadata import version
from types import ModuleType

import tensorflow as tf

from bench.lib import plots, targets
from bench.soak.section import section
from bench.traffic import null_gpus, null_pipeline

RESULTS = Path(__file__).parents[1] / "results"
PAGE, MEASURED = RESULTS / "RESULTS.md", RESULTS / "measured.json"
SOAK = RESULTS / "soak.json"  # what `make soak` found
NULL_GPUS = RESULTS / "null_gpus.json"  # and what `make null-gpu-check` counted
NULL_PIPELINE = RESULTS / "null_pipeline.json"
DRAWN, SLICES_DRAWN = RESULTS.parents[1] / "docs" / "pipeline.png", 4
BENCHMARKS = {  # folder and name → title, in the order of the page
    "exactness/peers": "The numbers of one device, by other ways as well",
    "speed/speedup": "Wall time on two cores",
    "speed/step_time": "CPU seconds per training step",
    "speed/pipeline": "Wall time on two cores of a model in two parts",
    "speed/engines": "CPU seconds per training step on both engines",
    "speed/overhead": "`fit` on 10 parameters",
    "speed/noise": "CPU ms of the noise of one device",
    "speed/embedding": "CPU ms per step with large embedding tables",
    "speed/first_step": "Xception, 8 replicas, batch 16: time to the first step, and peak memory",
    "speed/first_steps": "Deep models, batch 16: CPU seconds of the first step",
    "speed/xla_programs": "Programs that XLA compiles, and time to the first step",
    "speed/minigooglenet": "MiniGoogLeNet, the benchmark of a tutorial of 2017",
    "speed/trusted_files": "Loading a model from a trusted and from an untrusted file",
    "traffic/owner_balance": "Owners of Xception's weights on 8 devices",
    "traffic/transfers": "Transfers between devices in a step",
    "traffic/multi_worker": "Several workers on one machine's loopback",
    "memory/estimate_error": "Training memory per row, estimated and measured",
    "memory/large_array": "`fit` from R on an array of 1,000 × 224 × 224 × 3 doubles",
    "training/worker_faults": "Workers killed or stopped at random steps, and training resumed",
}
NAMES = {path.split("/")[1]: path for path in BENCHMARKS}
NOTES = """\
Devices are logical CPU devices of one machine, with one thread for each op. A ratio of 1 means that the distribution
costs nothing. A speed-up shows only on devices that work at the same time. CPU seconds are those of the process:
medians over rounds in which the strategies take turns. MirroredStrategy and the Keras 2 algorithm train on the same
devices and data. [keras2_algorithm.py](../lib/keras2_algorithm.py) reads variables one by one and packs nothing.
"""
NO_GPUS = """\
All figures are of CPU devices. [GPU.md](GPU.md) has those of one GPU. Nothing has run on several GPUs yet: if you have
some, `make gpu-check` measures on them.
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
    """Adds the rows of a benchmark one by one; its failure is returned, and the other benchmarks run all the same."""
    begin, rows = time.perf_counter(), []
    benchmark = benchmark_of(name)
    measured["environment"][name] = environment()
    measured["rows"][name] = rows
    try:
        for row in benchmark.rows():
            rows.append(row)
            write(measured)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return f"`{NAMES[name]}.py` stopped after {len(rows)} rows: {str(error).strip().splitlines()[-1]}"
    measured["environment"][name]["seconds"] = f"{time.perf_counter() - begin:.0f}"
    write(measured)
    print(f"## {BENCHMARKS[NAMES[name]]}\n\n{benchmark.table(rows)}\n", flush=True)
    return None


def write(measured: dict, failures: list[str] | None = None) -> None:
    """The measurements, and the page and the plots that show them."""
    MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False))
    PAGE.write_text("\n".join(page(measured, failures or [])))


def page(measured: dict, failures: list[str]) -> list[str]:
    """Sections of the page."""
    rows = measured["rows"]
    gpus = next((where["gpus"] for where in measured["environment"].values() if where["gpus"]), "")
    parts = [
        "# Results\n",
        NOTES,
        f"GPUs: {gpus}.\n" if gpus else NO_GPUS,
    ]
    parts += [f"**{failure}**\n" for failure in failures]
    parts += ["## Targets\n", targets.table(rows), ""]
    for name in (name for name in NAMES if rows.get(name)):
        parts += section_of(name, rows[name], measured["environment"][name])
    parts += [null_gpus.section(json.loads(NULL_GPUS.read_text()))] if NULL_GPUS.exists() else []
    if NULL_PIPELINE.exists():
        rows = json.loads(NULL_PIPELINE.read_text())
        plots.save_pipeline(next(row for row in rows if row["slices"] == SLICES_DRAWN), DRAWN)
        parts += [null_pipeline.section(rows)]
    return [*parts, section(json.loads(SOAK.read_text()))] if SOAK.exists() else parts


def section_of(name: str, rows: list[dict], where: dict[str, str]) -> list[str]:
    """A benchmark's section of the page, and its plot, if it has one."""
    title, seconds = BENCHMARKS[NAMES[name]], f", {where['seconds']} s" if "seconds" in where else ""
    parts = [
        f"## {title}\n",
        f"`python bench/{NAMES[name]}.py`: {where['date']}, {where['machine']}, {where['versions']}, "
        f"load of the machine before {where['load']}{seconds}.\n",
        f"{benchmark_of(name).table(rows)}\n",
    ]
    plot = plots.save(name, rows, RESULTS)
    return parts if plot is None else [*parts, f"![{title}]({plot.name})\n"]


def benchmark_of(name: str) -> ModuleType:
    """The module with its `rows()` and `table(rows)`."""
    return importlib.import_module(f"bench.{NAMES[name].replace('/', '.')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(NAMES), help="measure these, and keep what there is")
    only = parser.parse_args().only
    empty = {"environment": {}, "rows": {}}
    measured = empty if only is None or not MEASURED.exists() else json.loads(MEASURED.read_text())
    failures = [measure(name, measured) for name in (NAMES if only is None else only)]
    failures = [failure for failure in failures if failure]
    write(measured, failures)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
