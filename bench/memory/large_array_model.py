"""The model and the measures that both languages share in `large_array.py`."""

import json
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from keras import layers

EPOCHS = 1
ARRAY_BYTES = 1000 * 224 * 224 * 3 * 8


def build() -> keras.Model:
    """A network of 0.3 billion multiplications per image, a twelfth of what ResNet-50 takes."""
    model = keras.Sequential(
        [
            keras.Input((224, 224, 3)),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    model.fit(np.zeros((32, 224, 224, 3), "float32"), np.zeros((32, 1)), verbose=0)  # traces the step
    return model


def report(fit: Callable[[], object]) -> None:
    """Runs `fit` and prints its seconds and its memory at the peak, as a share of the array."""
    seen, done = [resident()], threading.Event()
    watch = threading.Thread(target=lambda: [seen.append(resident()) for _ in iter(lambda: done.wait(0.005), True)])
    watch.start()
    start, start_cpu = time.perf_counter(), time.process_time()
    fit()
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    done.set()
    watch.join()
    print(json.dumps({"seconds": seconds, "cpu": cpu, "share": (max(seen) - seen[0]) / ARRAY_BYTES}), flush=True)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
