"""CPU seconds per step of the peer that Keras 3 has itself: JAX, with `keras.distribution.DataParallel`.

It runs in an environment of its own, `.venv/jax`, which is made here with the same version of Keras. One device and
eight are two processes, since JAX splits the CPU when it starts. Run `python bench/speed/jax_data_parallel.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import json
import os
import statistics
import subprocess
import time
import venv
from collections.abc import Iterator
from importlib.metadata import version

import keras

from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import WORKLOADS

PYTHON = Path(__file__).parents[2] / ".venv" / "jax" / "bin" / "python"
ROUNDS, REPLICAS = 5, 8


def environment() -> None:
    """Makes it, once."""
    if not PYTHON.exists():
        venv.create(PYTHON.parents[1], with_pip=True)
        packages = [f"keras=={version('keras')}", "jax"]
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *packages], check=True)


def measure(workload: str) -> float:
    """Median CPU milliseconds of a step, on as many devices as JAX has."""
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    work = WORKLOADS[workload]
    model, (x, y) = work.compiled(work.build()), work.arrays()
    seconds = []
    for _ in range(ROUNDS + 1):
        begin = time.process_time()
        model.fit(x, y, batch_size=work.batch_size, shuffle=False, verbose=0)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds[1:]) / work.steps * 1000


def in_environment(workload: str, devices: int) -> float:
    """The same there, with the CPU split into so many."""
    split = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    # a device that waits for the others keeps its thread: with as many threads as two cores have, all would wait
    threads = {"NPROC": str(2 * REPLICAS)}
    environ = {**os.environ, **split, **threads, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([PYTHON, __file__, workload], env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def rows() -> Iterator[dict]:
    environment()
    for workload in ("conv net", "MLP 4×1024"):
        one, several = (in_environment(workload, devices) for devices in (1, REPLICAS))
        yield {"workload": workload, "N": REPLICAS, "one device": one, "DataParallel": several}


def table(rows: list[dict]) -> str:
    """Its own one device is what it is compared with."""
    head = ["workload", "N", "one device, CPU ms", "DataParallel ÷ one device"]
    lines = [
        [row["workload"], row["N"], f"{row['one device']:.0f}", f"{row['DataParallel'] / row['one device']:.2f}"]
        for row in rows
    ]
    return markdown_table(head, lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        print(table(list(rows())))
