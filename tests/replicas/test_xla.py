"""XLA compiles a replica forward and backward, once per size of its slice, however many epochs there are."""

import os
import subprocess
import sys
from pathlib import Path

from forked_python import python

TRAIN = """
import sys
from pathlib import Path

import keras
import numpy as np

import multigpu

multigpu.simulate_gpus(3)
template = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(2)])
parallel = multigpu.multi_gpu_model(template, gpus=3)
parallel.compile("sgd", "mse", jit_compile=True)
for _ in range(3):
    parallel.fit(np.ones((21, 4)), np.ones((21, 2)), batch_size=8, verbose=0)
    print("programs", len(list(Path(sys.argv[1]).glob("*before_optimizations.txt"))))
"""


def test_each_device_has_two_programs_for_each_size_that_it_meets_however_many_epochs_there_are(tmp_path):
    """XLA writes what it compiles into a folder, if it is told before it starts: hence a process of its own."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = subprocess.run(
        [*python(), "-c", TRAIN, tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    counts = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("programs")]
    # slices of 3, 3 and 2 rows, and 2, 2 and 1 of the last batch: two sizes for each device, forward and backward
    assert counts == [12, 12, 12]
