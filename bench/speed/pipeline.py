"""Wall time of a model in two parts: slices through a pair of devices on 2 cores, against one device on 1 core.

CPU devices share one pool of threads, so this shows that no slice waits needlessly; in which order GPUs are given
their work, and what that means, is counted by `bench/traffic/null_pipeline.py`. All are in one process and take turns.
Needs a quiet machine. Run `python bench/speed/pipeline.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import contextlib
import os
import time
from collections.abc import Iterator

import keras
import numpy as np

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, in_turn, run_script
from bench.speed.speedup import bind_threads

NOTE = """
A speed-up above 2 does not come from the second core alone: on one core, the two threads of TensorFlow's pool get in
each other's way. One slice can be as fast as several, because forward and backward passes have ops that can run at the
same time.
"""
ROUNDS, STEPS, ROWS, SLICES = 5, 6, 64, (1, 2, 4, 8)


def conv_parts(on) -> keras.Model:  # `on_device()`, or what does nothing
    """Two parts of about the same work, convolutions on 32×32×32 images."""
    x = inputs = keras.Input((32, 32, 32))
    for device in ("GPU:0", "GPU:1"):
        with on(device):
            for _ in range(3):
                x = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x))


def measure() -> dict[str, float]:
    """Median wall milliseconds per step: alone on one core, and with so many slices on two."""
    multigpu.simulate_gpus(2)
    available = sorted(os.sched_getaffinity(0))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS * STEPS, 32, 32, 32)).astype("float32"), np.zeros((ROWS * STEPS, 32), "float32")
    models = {"alone": conv_parts(lambda device: contextlib.nullcontext())}
    for number in SLICES:
        template = conv_parts(multigpu.on_device)
        models[str(number)] = multigpu.multi_gpu_model(template, gpus=[["GPU:0", "GPU:1"]] * number)
    for model in models.values():
        model.compile("sgd", "mse", jit_compile=False)

    def milliseconds(name: str) -> float:
        bind_threads(set(available[: 1 if name == "alone" else 2]))
        begin = time.perf_counter()
        models[name].fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
        return (time.perf_counter() - begin) / STEPS * 1000

    for name in models:  # traces
        milliseconds(name)
    return in_turn({name: lambda name=name: milliseconds(name) for name in models}, ROUNDS)


def rows() -> Iterator[dict]:
    load = os.getloadavg()[0]  # of others, since this waits for its own process
    yield {"load": load, "ms": in_own_process(__file__)}


def table(rows: list[dict]) -> str:
    head = ["slices", "one device on 1 core, ms per step", "two parts on 2 cores", "speed-up", "load before"]
    lines = []
    for row in rows:
        one = row["ms"]["alone"]
        lines += [
            [n, f"{one:.0f}", f"{row['ms'][str(n)]:.0f}", f"{one / row['ms'][str(n)]:.2f}", f"{row['load']:.1f}"]
            for n in SLICES
        ]
    return markdown_table(head, lines) + "\n" + NOTE


if __name__ == "__main__":
    run_script(measure, rows, table)
