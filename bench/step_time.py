"""CPU seconds per training step: one device, the parallel model, and MirroredStrategy on the same devices.

All are measured in one process, in turn, on 8 logical CPU devices with one thread per op; each figure is the median of
the process's CPU seconds, so that a busy machine does not count. Run it with `python bench/step_time.py`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import multigpu


def conv_net() -> keras.Model:
    """Six convolutions on 32×32×3 images."""
    blocks = []
    for filters in (32, 64, 128):
        blocks += [keras.layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(2)]
        blocks += [keras.layers.MaxPooling2D()]
    return keras.Sequential([keras.Input((32, 32, 3)), *blocks, keras.layers.Flatten(), keras.layers.Dense(10)])


def mlp() -> keras.Model:
    """Four hidden layers of 1024 units."""
    hidden = [keras.layers.Dense(1024, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((1024,)), *hidden, keras.layers.Dense(10)])


WORK = {"conv net": (conv_net, (32, 32, 3), 128, 8), "MLP 4×1024": (mlp, (1024,), 256, 20)}


def compiled(model: keras.Model) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss=loss, jit_compile=False)
    return model


def mirrored(build, num_replicas: int) -> keras.Model:
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)]).scope():
        return compiled(build())


def cpu_seconds(model: keras.Model, batches: tf.data.Dataset) -> float:
    begin = time.process_time()
    model.fit(batches, verbose=0, shuffle=False)
    return time.process_time() - begin


def measure(name: str, num_replicas: int, rounds: int) -> dict[str, float]:
    """Median CPU milliseconds per step of each way, taken in turn."""
    build, shape, batch_size, steps = WORK[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch_size * steps, *shape)).astype("float32")
    y = rng.integers(0, 10, batch_size * steps)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size, drop_remainder=True).cache()
    models = {
        "one device": compiled(build()),
        "multigpu": compiled(multigpu.multi_gpu_model(build(), gpus=num_replicas)),
        "MirroredStrategy": mirrored(build, num_replicas),
    }
    for model in models.values():
        model.fit(batches, verbose=0, shuffle=False)
    seconds: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(rounds):
        for kind, model in models.items():
            seconds[kind].append(cpu_seconds(model, batches) / steps)
    return {kind: statistics.median(values) * 1000 for kind, values in seconds.items()}


def in_own_process(name: str, num_replicas: int, rounds: int) -> dict[str, float]:
    """`measure` in a fresh process: TensorFlow's devices, and MirroredStrategy's groups of them, are fixed in one."""
    command = [sys.executable, __file__, "--worker", name, str(num_replicas), "--rounds", str(rounds)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--work", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--worker", nargs=2, metavar=("WORK", "REPLICAS"), help="measure one row and print it as JSON")
    arguments = parser.parse_args()
    if arguments.worker:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        name, num_replicas = arguments.worker[0], int(arguments.worker[1])
        multigpu.simulate_gpus(num_replicas)
        print(json.dumps(measure(name, num_replicas, arguments.rounds)))
        return
    print(
        "| work | N | one device, ms | multigpu ÷ one device | MirroredStrategy ÷ one device |\n|---|---|---|---|---|"
    )
    for name in arguments.work:
        for num_replicas in arguments.replicas:
            ms = in_own_process(name, num_replicas, arguments.rounds)
            ratios = [ms[kind] / ms["one device"] for kind in ("multigpu", "MirroredStrategy")]
            print(
                f"| {name} | {num_replicas} | {ms['one device']:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
