"""The devices, and what the first kernel of each kind takes: code for a newer GPU is compiled when it is first run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import keras
import numpy as np
import settings
import tensorflow as tf

AGAIN = 5


class Kernel(NamedTuple):
    """What is computed, of what, with the gradient."""

    make: Callable[[], Callable[[tf.Tensor], tf.Tensor]]  # when TensorFlow may start
    shape: tuple[int, ...]
    jit_compile: bool = False


IMAGES, SEQUENCES, MATRIX = (64, 32, 32, 16), (64, 20, 16), (512, 512)
MASK = np.arange(SEQUENCES[1]) < np.arange(1, SEQUENCES[0] + 1)[:, None]  # right-padded, as cuDNN wants it
KERNELS = {
    "product of matrices": Kernel(lambda: lambda x: x @ x, MATRIX),
    "convolution": Kernel(lambda: keras.layers.Conv2D(32, 3), IMAGES),
    "BatchNormalization": Kernel(lambda: partial(keras.layers.BatchNormalization(), training=True), IMAGES),
    "product of matrices, by XLA": Kernel(lambda: lambda x: tf.tanh(x @ x), MATRIX, jit_compile=True),
    "LSTM": Kernel(lambda: keras.layers.LSTM(32), SEQUENCES),
    "LSTM with a mask": Kernel(lambda: partial(keras.layers.LSTM(32), mask=tf.constant(MASK)), SEQUENCES),
}


def gradient_of(kernel: Kernel) -> Callable[[], np.ndarray]:
    """A traced function with the pass forward and backward, whose numbers are waited for."""
    x, call = tf.ones(kernel.shape), kernel.make()
    call(x)  # a layer makes its weights outside of the trace

    @tf.function(jit_compile=kernel.jit_compile)
    def gradient() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_mean(call(x))
        return tape.gradient(y, x)

    return lambda: gradient().numpy()


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def row(name: str) -> str:
    """A line of the table: all that precedes the first numbers counts as the first time."""
    begin = time.perf_counter()
    run = gradient_of(KERNELS[name])
    is_finite = bool(np.isfinite(run()).all())
    first = time.perf_counter() - begin
    later = statistics.median(seconds(run) for _ in range(AGAIN))
    return f"| {name} | {first:.2f} | {1000 * later:.2f} | {'yes' if is_finite else 'NO'} |"


def main(_: argparse.Namespace) -> int:
    """Prints each as soon as it is known. Status 1 if one gives numbers that are not finite."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        print(f"{gpu.name}: {tf.config.experimental.get_device_details(gpu)}")
        tf.config.experimental.set_memory_growth(gpu, True)
    print(f"TensorFlow {tf.__version__}, {dict(tf.sysconfig.get_build_info())}; Keras {keras.__version__}\n")
    print("| kernel, forward and backward | first, s | later, ms | finite |\n| --- | --- | --- | --- |")
    lines = []
    for name in KERNELS:
        with tf.device("GPU:0" if gpus else "CPU:0"):
            lines.append(row(name))
        print(lines[-1])
    return int(any("| NO |" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(settings.parser(__doc__).parse_args()))
