"""Prints how much memory the training of a deep MLP takes, on one device and on two, without remat and with it.

TensorFlow does not fix the order of ops that do not need one another, and by this order one value of a layer more or
less is alive at the peak, on one device, too. The model has so many layers that one value is a thirtieth of the peak.
"""

import os
import sys

os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "MULTIGPU_CHECK": "0"})
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # only this allocator counts. Without AVX-512, TensorFlow takes another one

import keras
import numpy as np
import tensorflow as tf

import multigpu

ROWS, WIDTH, BLOCKS = 8192, 32, 24
X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("float32")


class Block(keras.layers.Layer):
    """Three layers, of whose values all are kept for the gradient, or their input alone."""

    def __init__(self, remat):
        super().__init__()
        self.inner = [keras.layers.Dense(WIDTH, activation=keras.ops.sin) for _ in range(3)]
        self.run = keras.remat(self.part) if remat else self.part

    def build(self, shape):
        for layer in self.inner:
            layer.build(shape)

    def part(self, x):
        for layer in self.inner:
            x = layer(x)
        return x

    def call(self, x):
        return self.run(x)


def peak(gpus, remat):
    """The peak of TensorFlow's allocator of CPUs, which all parts of the CPU share, in two steps."""
    multigpu.simulate_gpus(2)
    keras.utils.set_random_seed(0)
    template = keras.Sequential([keras.Input((WIDTH,)), *(Block(remat) for _ in range(BLOCKS)), keras.layers.Dense(1)])
    model = multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=False)
    for _ in range(2):
        model.train_on_batch(X, X[:, :1])
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]


if __name__ == "__main__":
    for gpus in (None, 2):
        for remat in (False, True):
            child = os.fork()  # the allocator's peak is that of a process, and TensorFlow has not started yet
            if not child:
                sys.stdout.write(f"{gpus or 1} {remat} {peak(gpus, remat)}\n")
                sys.stdout.flush()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
