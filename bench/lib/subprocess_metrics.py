"""Measurements in a subprocess: TensorFlow's devices are set once per process, and peak memory is the process's."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))  # where the reader of executed graphs is

import tensorflow as tf


def in_own_process(script: str, **arguments: object) -> dict:
    """What the script's `measure(**arguments)` gives in a fresh process."""
    command = [sys.executable, script, "--worker", json.dumps(arguments)]
    env = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(script).name} {arguments}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_script(measure: Callable[..., dict], rows: Callable, table: Callable[[list[dict]], str]) -> None:
    """What a benchmark does when it is started: one measurement for `in_own_process`, or all of them for a reader."""
    if "--worker" in sys.argv:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        print(json.dumps(measure(**json.loads(sys.argv[-1]))))
    else:
        print(table(list(rows())))


def in_turn(measurements: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median over the rounds of each measurement; they take turns, so that noise meets all alike."""
    values: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure_once in measurements.items():
            values[name].append(measure_once())
    return {name: statistics.median(numbers) for name, numbers in values.items()}


def medians(rows: list[dict], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each strategy, the median of each of these numbers over its rows."""
    strategies = dict.fromkeys(row["strategy"] for row in rows)
    return {
        strategy: {name: statistics.median(row[name] for row in rows if row["strategy"] == strategy) for name in names}
        for strategy in strategies
    }
