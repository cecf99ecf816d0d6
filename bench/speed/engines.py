"""CPU seconds per step of a `fit` on both engines, beside one device and Keras' own DataParallel on JAX.

Each engine and number of devices has a process of its own, in which the ways take turns: TensorFlow in this
environment, JAX in `.venv/jax`, which is made here with the same version of Keras. Run `python bench/speed/engines.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import contextlib
import json
import logging
import os
import statistics
import subprocess
import time
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import version

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import WORKLOADS

PYTHON = Path(__file__).parents[2] / ".venv" / "jax" / "bin" / "python"
ROUNDS, STEPS, FEWER = 3, 2, 3
COUNTS, LAST = (2, 4, 8), 8
TRAINED = ("conv net", "MLP 4×1024")
ONE, OURS, UNEVEN, PEER = "one device", "multigpu", "multigpu, 3 rows fewer", "DataParallel"
STEPS_OF_JAX = ("_program", "train_step", "test_step")  # ours, and those of Keras


def environment() -> None:
    """Makes that of JAX, once."""
    if not PYTHON.exists():
        venv.create(PYTHON.parents[1], with_pip=True)
        packages = [f"keras=={version('keras')}", "jax"]
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *packages], check=True)


def in_environment(engine: str, task: str, workload: str, number: int) -> dict:
    """What a task gives in a process of its own, with the CPU split into so many devices."""
    # a device that waits for the others keeps its thread: with as many threads as two cores have, all would wait
    environ = {**os.environ, "KERAS_BACKEND": engine, "NPROC": "16", "PYTHONPATH": str(PYTHON.parents[3] / "python")}
    python = PYTHON if engine == "jax" else sys.executable
    command = [python, __file__, "--task", json.dumps([task, workload, number])]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def made(workload: str, way: str, number: int) -> keras.Model:
    """A compiled model. XLA compiles the steps of JAX, as it does for users."""
    work, on_jax = WORKLOADS[workload], keras.backend.backend() == "jax"
    with distribution(way):
        model = work.build()
        used = multigpu.multi_gpu_model(model, number) if way in (OURS, UNEVEN) else model
        return work.compiled(used, jit_compile=on_jax)


@contextlib.contextmanager
def distribution(way: str) -> Iterator[None]:
    """Keras' DataParallel is a setting for everything."""
    if way == PEER:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    try:
        yield
    finally:
        if way == PEER:
            keras.distribution.set_distribution(None)


def steps(workload: str, number: int) -> dict:
    """Median CPU milliseconds of a step of each way, and megabytes of weights and slots on the first device."""
    ways = [ONE, OURS, UNEVEN, *([PEER] if keras.backend.backend() == "jax" else [])]
    work = WORKLOADS[workload]
    x, y = work.arrays(STEPS)
    models = {way: made(workload, way, number) for way in ways}

    def milliseconds(way: str) -> float:
        size = work.batch_size - (FEWER if way == UNEVEN else 0)
        begin = time.process_time()
        with distribution(way):
            models[way].fit(x[: size * STEPS], y[: size * STEPS], batch_size=size, shuffle=False, verbose=0)
        return (time.process_time() - begin) / STEPS * 1000

    turns = [{way: milliseconds(way) for way in ways} for _ in range(ROUNDS + 1)]
    device = models[OURS].overview()[0]
    whole = sum(v.value.nbytes if hasattr(v.value, "nbytes") else v.numpy().nbytes for v in variables(models[ONE]))
    return {
        "ms": {way: statistics.median(turn[way] for turn in turns[1:]) for way in ways},
        "MB": {ONE: whole / 1e6, OURS: (device.weights + device.slots) / 1e6},
    }


def variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *model.optimizer.variables]


def first_steps(workload: str, number: int) -> dict:
    """CPU seconds of the first step of each way."""
    x, y = WORKLOADS[workload].arrays(1)
    seconds = {}
    for way in (ONE, OURS):
        model = made(workload, way, number)
        begin = time.process_time()
        model.train_on_batch(x, y)
        seconds[way] = time.process_time() - begin
    return {"seconds": seconds}


def compilations(workload: str, number: int) -> dict:
    """How many steps JAX compiles in a `fit` with validation and an uneven last batch."""
    import jax

    jax.config.update("jax_log_compiles", True)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("jax").addHandler(handler)
    found = {}
    x, y = WORKLOADS[workload].arrays(3)
    x, y = x[: 2 * 64 + 5], y[: 2 * 64 + 5]
    for way in (ONE, OURS):
        said.clear()
        made(workload, way, number).fit(x, y, batch_size=64, epochs=2, validation_data=(x[:70], y[:70]), verbose=0)
        found[way] = sum(f"Finished XLA compilation of jit({name})" in text for text in said for name in STEPS_OF_JAX)
    return {"compilations": found, "version": jax.__version__}


TASKS: dict[str, Callable[[str, int], dict]] = {
    "steps": steps,
    "first steps": first_steps,
    "compilations": compilations,
}


def rows() -> Iterator[dict]:
    environment()
    cases = [("steps", workload, number) for workload in TRAINED for number in COUNTS]
    for task, workload, number in [*cases, ("first steps", "Xception", LAST)]:
        for engine in ("jax", "tensorflow"):
            common = {"engine": engine, "task": task, "workload": workload, "N": number}
            yield {**common, **in_environment(engine, task, workload, number)}
    common = {"engine": "jax", "task": "compilations", "workload": TRAINED[1], "N": LAST}
    yield {**common, **in_environment(*common.values())}


def table(rows: list[dict]) -> str:
    """Each engine is compared with its own one device."""
    head = ["workload", "engine", "N", "one device, CPU ms", *(f"{way} ÷ one device" for way in (OURS, UNEVEN, PEER))]
    lines = []
    for row in (row for row in rows if row["task"] == "steps"):
        ratios = [row["ms"][way] / row["ms"][ONE] if way in row["ms"] else None for way in (OURS, UNEVEN, PEER)]
        shown = ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        lines.append([row["workload"], NAMES[row["engine"]], row["N"], f"{row['ms'][ONE]:.0f}", *shown])
    return "\n\n".join(
        [markdown_table(head, lines), "\n".join(map(_line, [row for row in rows if _line(row)]))]
    ).strip()


NAMES = {"jax": "JAX", "tensorflow": "TensorFlow"}


def _line(row: dict) -> str:
    """What a row says beside the table."""
    where = f"- {row['workload']} on {NAMES[row['engine']]}, N = {row['N']}"
    if row["task"] == "first steps":
        seconds = row["seconds"]
        ratio = seconds[OURS] / seconds[ONE]
        return f"{where}: the first step takes {ratio:.2f} times the CPU seconds of one device's, {seconds[ONE]:.1f} s."
    if row["task"] == "compilations":
        found = row["compilations"]
        return (
            f"{where}: a `fit` with validation and a smaller last batch compiles {found[OURS]} steps, on one device "
            f"{found[ONE]} (JAX {row['version']})."
        )
    if row["N"] == LAST:
        return f"{where}: a device stores {row['MB'][OURS]:.1f} MB of weights and slots, of {row['MB'][ONE]:.1f} MB."
    return ""


if __name__ == "__main__":
    if "--task" in sys.argv:
        asked, of, split = json.loads(sys.argv[-1])
        multigpu.simulate_gpus(split)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.threading.set_intra_op_parallelism_threads(1)
        print(json.dumps(TASKS[asked](of, split)))
    else:
        print(table(list(rows())))
