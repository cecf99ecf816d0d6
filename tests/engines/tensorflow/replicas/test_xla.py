"""XLA compiles a replica forward and backward, once per slice size, whatever the epochs; no loops or branches."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import some
from equality import assert_same_training, random_rows
from forked_python import python
from keras import layers

from multigpu import multi_gpu_model

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


class Powers(keras.layers.Layer):
    """Sums of powers, in a loop of its own."""

    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def build(self, shape):
        self._factor = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        if self._loop == "scan":
            steps = keras.ops.transpose(keras.ops.stack([x, x, x], axis=1), (1, 0, 2))
            return keras.ops.scan(lambda carry, y: (carry + y * self._factor, carry), x, steps)[0]
        return keras.ops.while_loop(
            lambda step, _: step < 3, lambda step, sums: (step + 1, sums + x * self._factor**step), (0.0, x)
        )[1]


class Branches(keras.layers.Layer):
    """A power that a branch chooses, by a number that is not known before the step runs."""

    def __init__(self, branch):
        super().__init__()
        self._branch, self._seeds = branch, keras.random.SeedGenerator(1)

    def build(self, shape):
        self._factor = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        number = tf.cast(self._seeds.state[0], "int32")
        if self._branch == "switch_case":
            return tf.switch_case(number, [lambda: x, lambda: (x * self._factor) ** 2])
        if self._branch == "noise":
            noisy = lambda: x * self._factor + keras.random.uniform(tf.shape(x), seed=self._seeds)  # noqa: E731
            return tf.cond(number > 0, noisy, lambda: x)
        return keras.ops.cond(number > 0, lambda: (x * self._factor) ** 2, lambda: x)


CONTROL_FLOW = {
    "cond": lambda: [Branches("cond")],
    "switch_case": lambda: [Branches("switch_case")],
    "noise in a branch": lambda: [Branches("noise")],
    "SimpleRNN": lambda: [layers.Reshape((3, 2)), layers.SimpleRNN(4)],
    "LSTM without cuDNN": lambda: [layers.Reshape((3, 2)), layers.LSTM(4, use_cudnn=False)],
    "scan": lambda: [Powers("scan")],
    "while_loop": lambda: [Powers("while")],
}


@pytest.mark.parametrize("kind", some(CONTROL_FLOW, ["LSTM without cuDNN", "while_loop", "cond", "noise in a branch"]))
def test_a_template_with_a_loop_or_a_branch_trains_as_on_one_device_where_xla_is_asked_for(kind):
    x, y = random_rows(21, 6), random_rows(21, 2, seed=1)
    jit_compile = iter((False, True))  # on one device XLA cannot train all of them
    assert_same_training(
        lambda: keras.Sequential([keras.Input((6,)), *CONTROL_FLOW[kind](), layers.Dense(2)]),
        x,
        y,
        compile=lambda: {"optimizer": "sgd", "loss": "mse", "jit_compile": next(jit_compile)},
    )


class Gpu:
    """All that Keras asks of a GPU before it compiles a model with XLA."""

    device_type = "GPU"


def test_a_plain_model_with_a_parallel_part_is_not_compiled_by_xla_where_there_are_gpus(monkeypatch):
    devices = tf.config.list_physical_devices

    def train(part):
        keras.utils.set_random_seed(0)
        template = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh")])
        model = keras.Sequential([keras.Input((4,)), part(template), layers.Dense(2)])
        with monkeypatch.context() as patched:
            patched.setattr(tf.config, "list_physical_devices", lambda *kind: [*devices(*kind), Gpu()])
            model.compile("sgd", "mse")
        return model, model.fit(random_rows(7, 4), random_rows(7, 2, seed=1), verbose=0).history["loss"]

    plain, of_one = train(lambda template: template)
    model, of_several = train(lambda template: multi_gpu_model(template, gpus=2))
    assert plain.jit_compile
    assert not model.jit_compile
    np.testing.assert_allclose(of_several, of_one, rtol=1e-5)
