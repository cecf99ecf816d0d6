"""What the noise of one device costs: a step with Dropout, and the same step where each replica draws for itself.

Run `python bench/speed/noise.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from statistics import median

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from multigpu.base.replaced import replaced
from multigpu.engines.tensorflow.replicas.noise import SliceNoise

Build = Callable[[], keras.Model]
ROUNDS, STEPS, NUM_REPLICAS = 150, 4, 2
RNG = np.random.default_rng(0)


def conv_net() -> keras.Model:
    """Three convolutions and two dense layers, with Dropout after each but the last."""
    parts = [keras.Input((32, 32, 3))]
    for filters in (16, 32, 64):
        parts += [layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D()]
        parts += [layers.Dropout(0.25)]
    top = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dropout(0.5), layers.Dense(10)]
    return keras.Sequential([*parts, *top])


def transformer() -> keras.Model:
    """Two blocks, with dropout in the attention and after each part."""
    ids = keras.Input((64,), dtype="int32")
    x = layers.Embedding(1000, 64)(ids)
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
        hidden = layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(hidden))
    return keras.Model(ids, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


MODELS = {
    "conv net": (conv_net, RNG.normal(size=(64, 32, 32, 3)).astype("float32")),
    "transformer": (transformer, RNG.integers(0, 1000, (32, 64))),
}


def measure(model: str) -> dict[str, float]:
    """Median CPU milliseconds per step with the noise of one device and without it, and the median of the ratios."""
    os.environ["MULTIGPU_CHECK"] = "0"  # which would refuse what draws for itself
    multigpu.simulate_gpus(NUM_REPLICAS)
    build, rows = MODELS[model]
    x, y = tf.constant(rows), tf.constant(RNG.integers(0, 10, len(rows)))
    as_on_one_device, by_itself = traced(build, x, y), by_replicas(build, x, y)
    rounds = []
    for number in range(ROUNDS):
        pair = (as_on_one_device, by_itself)
        ms = {id(each): cpu_ms(each, x, y) for each in (pair if number % 2 else pair[::-1])}
        rounds.append([ms[id(each)] for each in pair])
    ours, others = zip(*rounds[1:], strict=True)
    return {
        "ms": median(ours),
        "without": median(others),
        "ratio": median(a / b for a, b in zip(ours, others, strict=True)),
    }


def traced(build: Build, x: tf.Tensor, y: tf.Tensor) -> keras.Model:
    parallel = multigpu.multi_gpu_model(build(), gpus=NUM_REPLICAS)
    parallel.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    parallel.train_on_batch(x, y)  # traces
    return parallel


def by_replicas(build: Build, x: tf.Tensor, y: tf.Tensor) -> keras.Model:
    with replaced(SliceNoise, "of_slice", lambda self: contextlib.nullcontext()):
        return traced(build, x, y)


def cpu_ms(model: keras.Model, x: tf.Tensor, y: tf.Tensor) -> float:
    before = time.process_time()
    for _ in range(STEPS):
        model.train_on_batch(x, y)
    return (time.process_time() - before) / STEPS * 1000


def rows() -> Iterator[dict]:
    for model in MODELS:
        yield {"model": model, **in_own_process(__file__, model=model)}


def table(rows: list[dict]) -> str:
    head = ["model with Dropout, N = 2", "CPU ms per step", "if replicas draw for themselves", "ratio"]
    return markdown_table(
        head,
        [[row["model"], f"{row['ms']:.1f}", f"{row['without']:.1f}", f"{row['ratio']:.3f}"] for row in rows],
    )


if __name__ == "__main__":
    run_script(measure, rows, table)
