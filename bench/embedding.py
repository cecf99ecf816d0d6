"""Step time of a model with a large embedding table against a small one: only rows travel, so it should not matter."""

import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import multigpu

BATCH_SIZE, STEPS, ROUNDS, WORDS = 256, 20, 7, 20
SIZES = (10_000, 1_000_000)


def build(size: int) -> keras.Model:
    inputs = keras.Input((WORDS,), dtype="int32")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(size, 64)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(512, activation="relu")(x)))


def compiled(model: keras.Model) -> keras.Model:
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    return model


def main() -> None:
    multigpu.simulate_gpus(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    models, batches = {}, {}
    for size in SIZES:
        ids = np.random.default_rng(0).integers(0, size, (BATCH_SIZE * STEPS, WORDS))
        targets = np.ones((len(ids), 1), "float32")
        batches[size] = tf.data.Dataset.from_tensor_slices((ids, targets)).batch(BATCH_SIZE).cache()
        models[size, "one device"] = compiled(build(size))
        models[size, "multigpu, 2"] = compiled(multigpu.multi_gpu_model(build(size), gpus=2))
    for (size, _), model in models.items():
        model.fit(batches[size], verbose=0, shuffle=False)
    seconds: dict = {key: [] for key in models}
    for _ in range(ROUNDS):
        for (size, kind), model in models.items():
            begin = time.process_time()
            model.fit(batches[size], verbose=0, shuffle=False)
            seconds[size, kind].append((time.process_time() - begin) / STEPS)
    print("| way | 10,000 × 64, ms CPU per step | 1,000,000 × 64 | ratio |\n|---|---|---|---|")
    for kind in ("one device", "multigpu, 2"):
        small, large = (statistics.median(seconds[size, kind]) * 1000 for size in SIZES)
        print(f"| {kind} | {small:.1f} | {large:.1f} | {large / small:.2f} |")


if __name__ == "__main__":
    main()
