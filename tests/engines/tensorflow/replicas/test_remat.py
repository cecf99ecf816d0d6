"""Parts that a template asks to compute twice are computed twice, with the numbers of one device."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_numbers, assert_same_training, mean_squared, random_rows, train
from executed_graphs import executed
from keras import layers, ops
from tensorflow import recompute_grad as imported_before

import multigpu

X, Y = random_rows(18, 4), random_rows(18, 2, seed=1)


class Block(layers.Layer):
    """A layer and a weight, in a part that is to be computed again."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.dense = layers.Dense(4, activation=keras.ops.sin)  # which no CPU fuses with the product
        self.made_before, self.imported = keras.remat(self.part), imported_before(lambda x: self.part(x))

    def build(self, shape):
        self.dense.build(shape)
        self.kernel = self.add_weight(shape=(4, 4), name="kernel")

    def compute_output_shape(self, shape):
        return shape

    def part(self, x):
        return ops.matmul(self.dense(x), self.kernel)

    def call(self, x):
        return WAYS[self.way](self, x)


WAYS = {
    "made in __init__": lambda s, x: s.made_before(x),
    "name of old": lambda s, x: s.imported(x),
    "made in call": lambda s, x: keras.remat(s.part)(x),
    "weight as an argument": lambda s, x: keras.remat(lambda x, k: ops.matmul(s.dense(x), k))(x, s.kernel),
    "within another": lambda s, x: keras.remat(lambda x: s.made_before(x) + s.made_before(x))(x),
    "tf.function": lambda s, x: keras.remat(tf.function(s.part))(x),
    "structures": lambda s, x: sum(keras.remat(lambda d: {"a": s.part(d["x"]), "b": d["x"]})({"x": x}).values()),
    "in a branch": lambda s, x: tf.cond(tf.shape(x)[0] > 0, lambda: s.made_before(x), lambda: x),
    "in a loop": lambda s, x: tf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, s.made_before(h)), (0, x))[1],
}


WAYS_OF_RUNNING = {
    "traced": ({"run_eagerly": False}, [way for way in WAYS if "in a " not in way]),  # which one device cannot trace
    "traced, one device eagerly": ({}, ["in a branch", "in a loop"]),
    "eagerly": ({"run_eagerly": True}, ["made in __init__", "made in call"]),  # one device counts an argument twice
    "XLA": ({"jit_compile": True}, ["made in __init__", "within another"]),
}


@pytest.mark.parametrize("run", WAYS_OF_RUNNING)
def test_what_is_computed_again_has_the_numbers_of_one_device_wherever_it_was_made(run):
    way, ways = WAYS_OF_RUNNING[run]

    def build():
        return keras.Sequential([keras.Input((4,)), *(Block(each) for each in ways), layers.Dense(2)])

    before = build().get_weights()
    template = assert_same_training(build, X, Y, compile=lambda: {**mean_squared(), **way}, only_fit=True)
    assert all(np.abs(a - b).max() > 1e-4 for a, b in zip(template.get_weights(), before, strict=True))


def test_a_remat_scope_has_the_numbers_of_one_device():
    def build(mode):
        with keras.RematScope(mode=mode, output_size_threshold=0):
            return keras.Sequential([keras.Input((4,)), layers.Dense(4, activation="tanh"), layers.Dense(2)])

    for mode in ("full", "activations", "larger_than"):
        assert_same_training(lambda mode=mode: build(mode), X, Y, compile=mean_squared, gpus=2, only_fit=True)


class Stateful(layers.Layer):
    """A part with noise, moving means and a counter, computed again or not."""

    def __init__(self, remat):
        super().__init__()
        self.remat = remat
        self.dense, self.dropout = layers.Dense(4, activation="tanh"), layers.Dropout(0.5, seed=1)
        self.norm = layers.BatchNormalization()

    def build(self, shape):
        self.dense.build(shape)
        self.norm.build(shape)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def compute_output_shape(self, shape):
        return shape

    def part(self, x, training):
        self.calls.assign(self.calls + 1.0)
        return self.dropout(self.norm(self.dense(x), training=training), training=training) * self.calls

    def call(self, x, training=None):
        return (keras.remat(self.part) if self.remat else self.part)(x, bool(training))


def test_what_is_computed_again_sees_the_same_noise_and_state_which_change_once():
    numbers = [
        train(
            lambda remat=remat: keras.Sequential(
                [keras.Input((4,)), Stateful(remat), Stateful(remat), layers.Dense(2)]
            ),
            *(X, Y),
            compile=mean_squared,
            gpus=2,
            only_fit=True,
        )[1]
        for remat in (False, True)
    ]
    assert_same_numbers(numbers[1], numbers[0], rtol=1e-5, atol=1e-6)


def test_it_is_computed_again_on_the_same_device_and_nothing_else_is_kept():
    template = keras.Sequential([keras.Input((4,)), *(Block("made in __init__") for _ in range(3)), layers.Dense(2)])
    parallel = multigpu.multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), jit_compile=False)
    run = executed(lambda: parallel.train_on_batch(X, Y))
    assert run.ops["Sin"] == {"CPU:0": 6, "CPU:1": 6}


def test_replicas_with_remat_have_the_peak_of_memory_of_one_device_and_save_what_it_saves():
    """Peaks of TensorFlow's allocator, which both parts of the CPU share; each replica has half of the rows."""
    script = Path(__file__).parents[3] / "support" / "remat_memory.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    peaks = {(int(devices), remat == "True"): int(peak) for devices, remat, peak in lines}
    assert peaks[1, True] < peaks[1, False] / 3
    assert peaks[2, True] <= 1.1 * peaks[1, True]
    saved = {devices: peaks[devices, False] - peaks[devices, True] for devices in (1, 2)}
    assert saved[2] >= saved[1] / 1.1


def test_an_estimate_knows_what_is_not_kept():
    def activations(way):
        blocks = [Block(way) for _ in range(8)]
        model = keras.Sequential([keras.Input((4,)), *blocks, layers.Dense(1)])
        return multigpu.estimate(model, gpus=2, batch_size=2048)[0].activations

    WAYS["once"] = lambda s, x: s.part(x)
    kept = 1024 * 4 * 4  # bytes of the values of a Block for its slice
    assert activations("once") - activations("made in __init__") > 5 * kept
    assert activations("made in call") == activations("made in __init__")
    with keras.RematScope(mode="full"):
        assert activations("once") == activations("made in __init__")


def test_what_is_computed_again_outside_of_replicas_is_as_before():
    recompute = tf.recompute_grad
    block = Block("made in __init__")
    parallel = multigpu.multi_gpu_model(keras.Sequential([keras.Input((4,)), block, layers.Dense(2)]), gpus=2)
    parallel.compile(**mean_squared())
    parallel.train_on_batch(X, Y)
    with tf.GradientTape() as tape:
        outputs = block(X)
    assert tape.gradient(outputs, block.kernel.value) is not None
    assert tf.recompute_grad is recompute
