"""`fit` from Python on a large array of doubles, for `large_array.py`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import numpy as np

from bench.memory.large_array_model import EPOCHS, build, report

x = np.random.default_rng(0).random((1000, 224, 224, 3))
y = np.zeros((1000, 1))
model = build()
report(lambda: model.fit(x, y, epochs=EPOCHS, verbose=0))
