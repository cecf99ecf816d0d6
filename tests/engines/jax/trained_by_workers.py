"""A training by all workers of a cluster, or by one process: `python trained_by_workers.py FILE SEED`.

What it ends with is in FILE: all variables, predictions and logs.
"""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

import multigpu

multigpu.simulate_gpus(2)


def build():
    middle = [layers.Dense(64, "tanh"), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(64)]
    return keras.Sequential([keras.Input((5,)), *middle, layers.Dense(int(os.environ.get("WIDTH", "3")))])


class Writes(keras.callbacks.CSVLogger):
    """A writer, which the chief alone has."""


def main(file, seed):
    keras.utils.set_random_seed(int(seed))
    model = build()
    parallel = multigpu.multi_gpu_model(model, 2)
    parallel.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(11, 5)).astype("float32"), rng.normal(size=(11, 3)).astype("float32")
    logs = parallel.fit(
        x, y, batch_size=4, epochs=2, verbose=0, validation_data=(x[:5], y[:5]), callbacks=[Writes(f"{file}.csv")]
    ).history
    evaluated = parallel.evaluate(x, y, batch_size=4, verbose=0)
    predicted = parallel.predict(x[:3], verbose=0)
    values = [variable.numpy() for variable in [*model.variables, *model.optimizer.variables]]
    np.savez(file, *values, *logs.values(), evaluated, predicted, parallel(x[:2]))
    model.save(f"{file}.keras")
    try:
        parallel.fit(iter([(x, y)]))
    except ValueError as error:
        Path(f"{file}.txt").write_text(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
