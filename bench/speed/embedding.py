"""Step time of a model with a large embedding table against a small one: only rows travel.

What is left is the memory of the machine: rows drawn from a large table are not in the processor's cache. The same
step with ids that fall on as few rows as the small table has, and the bare lookup and update without any model around
it, tell that apart. Run `python bench/speed/embedding.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, in_turn, run_script

BATCH_SIZE, STEPS, ROUNDS, WORDS, UNITS = 256, 20, 15, 20, 64
SMALL, LARGE = 10_000, 1_000_000
IDS = {
    "small": (SMALL, lambda ids: ids),
    "large": (LARGE, lambda ids: ids),
    "large, 10,000 rows in use": (LARGE, lambda ids: ids % SMALL),
    "large, 10,000 rows in use, far apart": (LARGE, lambda ids: ids // 100 * 100),
}


def model(size: int) -> keras.Model:
    inputs = keras.Input((WORDS,), dtype="int32")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(size, UNITS)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(512, activation="relu")(x)))


def fitting(size: int, batches: tf.data.Dataset, num_replicas: int | None) -> Callable[[], object]:
    trained = model(size) if num_replicas is None else multigpu.multi_gpu_model(model(size), gpus=num_replicas)
    trained.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    return lambda: trained.fit(batches, verbose=0)


def bare(size: int, batches: tf.data.Dataset) -> Callable[[], object]:
    """TensorFlow's own lookup of rows in a variable, and update of as many others.

    In a training step so much comes between the two that a row is no longer in the processor's cache when it is
    updated; here the update takes other rows instead.
    """
    table = tf.Variable(tf.zeros((size, UNITS)))

    @tf.function
    def epoch() -> None:
        for ids, others in batches:
            looked_up = tf.reshape(ids, [-1])
            rows = tf.raw_ops.ResourceGather(resource=table.handle, indices=looked_up, dtype=tf.float32)
            updated = tf.reshape(others, [-1])
            tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=updated, updates=rows)

    return epoch


def measure(strategy: str) -> dict[str, float]:
    """CPU milliseconds per step for each kind of table and ids, in turn."""
    multigpu.simulate_gpus(2)
    measurements = {}
    for name, (size, reduce) in IDS.items():
        draw = lambda seed: np.random.default_rng(seed).integers(0, size, (BATCH_SIZE * STEPS, WORDS))  # noqa: B023,E731
        ids, others = (reduce(draw(seed)).astype("int32") for seed in (0, 1))
        targets = others if strategy == "bare" else np.ones((len(ids), 1), "float32")
        batches = tf.data.Dataset.from_tensor_slices((ids, targets)).batch(BATCH_SIZE).cache()
        replicas = 2 if strategy == "multigpu" else None
        epoch = bare(size, batches) if strategy == "bare" else fitting(size, batches, replicas)
        epoch()
        measurements[name] = lambda epoch=epoch: _cpu_milliseconds(epoch)
    return in_turn(measurements, ROUNDS)


def _cpu_milliseconds(epoch: Callable[[], object]) -> float:
    begin = time.process_time()
    epoch()
    return (time.process_time() - begin) / STEPS * 1000


def rows() -> Iterator[dict]:
    for strategy in ("one device", "multigpu", "bare"):
        yield {"strategy": strategy, "ms": in_own_process(__file__, strategy=strategy)}


def table(rows: list[dict]) -> str:
    lines = [[row["strategy"], *(f"{ms:.2f}" for ms in row["ms"].values())] for row in rows]
    return markdown_table(["strategy", *IDS], lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
