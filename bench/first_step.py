"""Seconds to the first step and peak memory of Xception on 71×71 images: one device, multigpu, MirroredStrategy.

Each is measured in a process of its own, since peak memory is the process's. Run `python bench/first_step.py`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import multigpu

BATCH_SIZE, STEPS = 16, 3


def xception() -> keras.Model:
    return keras.applications.Xception(weights=None, input_shape=(71, 71, 3), classes=10)


def compiled(model: keras.Model) -> keras.Model:
    model.compile(optimizer=keras.optimizers.Adam(), loss="sparse_categorical_crossentropy", jit_compile=False)
    return model


def build(kind: str, num_replicas: int) -> keras.Model:
    if kind == "one device":
        return compiled(xception())
    if kind == "multigpu":
        return compiled(multigpu.multi_gpu_model(xception(), gpus=num_replicas))
    with tf.distribute.MirroredStrategy(multigpu.available_gpus()).scope():
        return compiled(xception())


def measure(kind: str, num_replicas: int) -> dict[str, float]:
    """Wall seconds to the end of the first step, CPU seconds of a later one, and peak memory in GB."""
    multigpu.simulate_gpus(num_replicas)
    model = build(kind, num_replicas)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH_SIZE, 71, 71, 3)).astype("float32")
    y = rng.integers(0, 10, BATCH_SIZE)
    begin = time.perf_counter()
    model.train_on_batch(x, y)
    first = time.perf_counter() - begin
    steps = []
    for _ in range(STEPS):
        begin = time.process_time()
        model.train_on_batch(x, y)
        steps.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"first": first, "step": statistics.median(steps), "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--kinds", nargs="+", default=["one device", "multigpu", "MirroredStrategy"])
    parser.add_argument("--worker", help="measure one kind and print it as JSON")
    arguments = parser.parse_args()
    if arguments.worker:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        print(json.dumps(measure(arguments.worker, arguments.replicas)))
        return
    print("| Xception 71×71, batch 16 | N | seconds to first step | CPU s per step | peak memory, GB |")
    print("|---|---|---|---|---|")
    for kind in arguments.kinds:
        command = [sys.executable, __file__, "--worker", kind, "--replicas", str(arguments.replicas)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        row = json.loads(printed.stdout.splitlines()[-1])
        print(
            f"| {kind} | {arguments.replicas} | {row['first']:.1f} | {row['step']:.2f} | {row['peak']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
