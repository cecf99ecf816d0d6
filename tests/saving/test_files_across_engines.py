"""A file that was written on one engine is read on the other, with weights and the state of the optimizer."""

import os
import subprocess
import sys

import numpy as np
import pytest
from cases import soak

PROGRAM = """
import sys
import keras, multigpu, numpy as np
from keras import layers
multigpu.simulate_gpus(4)
task, file, values = sys.argv[1:]
keras.utils.set_random_seed(1)
x, y = np.random.default_rng(0).normal(size=(10, 5)), np.random.default_rng(1).normal(size=(10, 3))
model = keras.Sequential([keras.Input((5,)), layers.Dense(64, "tanh"), layers.Dense(64), layers.Dense(3)])
parallel = multigpu.multi_gpu_model(model, 4)
parallel.compile("adam", "mse")
if task == "write":
    parallel.fit(x, y, batch_size=4, verbose=0, shuffle=False)
    parallel.save_weights(file) if file.endswith(".weights.h5") else parallel.save(file)
else:
    if file.endswith(".weights.h5"):
        parallel.train_on_batch(x, y)  # makes the slots
        parallel.load_weights(file)
    else:
        load = multigpu.load_model_hdf5 if file.endswith(".h5") else keras.saving.load_model
        model = load(file)
        parallel = multigpu.multi_gpu_model(model, 4)
kept = [v.numpy() for v in [*model.trainable_variables, *parallel.optimizer.variables]]
trained = parallel.train_on_batch(x, y)
np.savez(values, *kept, trained, *model.get_weights())
"""


def run(backend, task, file, values):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, task, str(file), str(values)],
        env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    stored = np.load(f"{values}.npz")
    return [stored[name] for name in stored.files]


@pytest.mark.parametrize(
    ("writer", "reader", "ending"),
    [
        ("jax", "tensorflow", ".keras"),
        ("tensorflow", "jax", ".h5"),
        ("jax", "tensorflow", ".weights.h5"),
        soak("tensorflow", "jax", ".keras"),
        soak("jax", "tensorflow", ".h5"),
        soak("tensorflow", "jax", ".weights.h5"),
    ],
)
def test_what_one_engine_writes_the_other_reads_and_trains_on(writer, reader, ending, tmp_path):
    written = run(writer, "write", tmp_path / f"model{ending}", tmp_path / "written")
    read = run(reader, "read", tmp_path / f"model{ending}", tmp_path / "read")
    assert len(read) == len(written)
    for actual, expected in zip(read, written, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
