"""Each replica runs on its own device, forward and backward: read from the executed graphs, not from the source."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from executed_graphs import executed

import multigpu

DEVICES = ["CPU:1", "CPU:2", "CPU:3", "CPU:4"]  # none of them the default device, where stray ops would land
IMAGES = np.random.default_rng(0).normal(size=(16, 8, 8, 2)).astype("float32")
LABELS = np.random.default_rng(1).integers(0, 3, 16)


def conv_net():
    return keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            keras.layers.Conv2D(4, 3, activation="tanh"),
            keras.layers.Conv2D(4, 3, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def step_of(parallel, optimizer="adam", **compile_arguments):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    parallel.compile(optimizer=optimizer, loss=loss, **compile_arguments)
    batches = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(8)
    return executed(lambda: parallel.fit(batches, verbose=0, shuffle=False))


def equally_many(counts, devices=DEVICES):
    return sorted(counts) == sorted(devices) and len(set(counts.values())) == 1


@pytest.fixture(scope="module")
def run():
    """What was run in a step with Adam."""
    return step_of(multigpu.multi_gpu_model(conv_net(), gpus=DEVICES))


def test_forward_and_backward_run_on_each_replicas_device_equally(run):
    assert equally_many(run.devices_of("Conv2D")), run.ops  # forward, and both backward ops
    assert equally_many(run.devices_of("Conv2DBackpropFilter"))
    assert equally_many(run.devices_of("MatMul"))
    assert equally_many(run.devices_of("TanhGrad"))


def test_the_first_layer_computes_no_gradient_of_the_images(run):
    assert set(run.devices_of("Conv2DBackpropInput").values()) == {1}  # of the second layer only


def test_what_an_optimizer_computes_from_its_counter_it_computes_once_for_all_weights(run):
    assert run.devices_of("Pow") == {"CPU:0": 2}  # of each of Adam's two rates of decay


@pytest.mark.parametrize("jit_compile", [soak(True), "auto"])
def test_xla_compiles_each_replica_on_its_own_device(jit_compile, monkeypatch):
    if jit_compile == "auto":  # on a machine with a GPU, Keras resolves "auto" so
        monkeypatch.setattr(keras.Model, "_resolve_auto_jit_compile", lambda self: True)
    run = step_of(multigpu.multi_gpu_model(conv_net(), gpus=DEVICES), jit_compile=jit_compile)
    compiled = run.devices_of("PartitionedCall", "_XlaRun", "XlaLaunch")
    assert equally_many(compiled), run.ops
    assert not run.devices_of("Conv2D")  # all inside


def test_without_cpu_merge_the_loss_is_taken_on_the_first_gpu():
    run = step_of(multigpu.multi_gpu_model(conv_net(), gpus=DEVICES, cpu_merge=False))
    assert set(run.devices_of("SparseSoftmaxCrossEntropyWithLogits")) == {"CPU:1"}


def test_a_step_that_is_run_eagerly_takes_the_loss_where_it_would_be_taken():
    devices = []

    def loss(y, predicted):
        devices.append(keras.ops.mean(predicted).device.rsplit("device:", 1)[-1])
        return predicted[:, 0]

    for cpu_merge in (False, True):
        parallel = multigpu.multi_gpu_model(conv_net(), gpus=DEVICES, cpu_merge=cpu_merge)
        parallel.compile("sgd", loss, run_eagerly=True)
        parallel.train_on_batch(IMAGES, LABELS)
    assert devices == ["CPU:1", "CPU:0"]


def test_with_cpu_merge_the_loss_is_taken_on_the_cpu(run):
    assert set(run.devices_of("SparseSoftmaxCrossEntropyWithLogits")) == {"CPU:0"}


def test_few_tensors_travel_because_weights_are_packed():
    template = conv_net()
    run = step_of(multigpu.multi_gpu_model(template, gpus=DEVICES), optimizer="sgd")
    others = len(DEVICES) - 1
    for device in DEVICES:
        arriving = sum(n for (_, end), n in run.transfers.items() if end == device)
        leaving = sum(n for (start, _), n in run.transfers.items() if start == device)
        # its slice and its rows, a bucket of weights and one of gradients from each other owner, the gradient of its
        # outputs, and the learning rate, once for all weights that it owns
        assert arriving <= 2 + 2 * others + 1 + 1
        # a bucket of weights and one of gradients to each other owner, its outputs, and word that its update is done
        assert leaving <= 2 * others + 2


def test_a_users_own_loop_runs_backward_on_the_replicas_too():
    template = conv_net()
    parallel = multigpu.multi_gpu_model(template, gpus=DEVICES)

    def loop():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(parallel(IMAGES, training=True) ** 2)
        tape.gradient(loss, parallel.trainable_weights)

    assert equally_many(executed(loop).devices_of("Conv2DBackpropFilter"))


def test_the_template_alone_trains_after_xla_compiled_its_replicas():
    template = conv_net()
    parallel = multigpu.multi_gpu_model(template, gpus=DEVICES)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    parallel.compile(optimizer="adam", loss=loss, jit_compile=True)
    parallel.fit(IMAGES, LABELS, verbose=0)
    template.fit(IMAGES, LABELS, verbose=0)  # not as one XLA program, which reads no other device
    assert not template.jit_compile
    multigpu.bring_home(parallel)
    assert template.jit_compile
    template.fit(IMAGES, LABELS, verbose=0)
