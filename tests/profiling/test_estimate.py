"""An estimate is what the parallel model turns out to take, without anything being moved."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import some
from equality import dense_model
from keras import layers

from multigpu import estimate, multi_gpu_model, on_device
from multigpu.engines.tensorflow.profiling.activation_memory import most_at_once
from multigpu.engines.tensorflow.weights.place_locate import locate

PARAMETERS = 206_538_153
DEVICES = ["CPU:1", "CPU:2", "CPU:3"]


@pytest.fixture(scope="module")
def large_model():
    """As many parameters as the model of the pages, in two layers."""
    hidden = 8192
    rest = PARAMETERS - (1000 * hidden + hidden)
    outputs, left = divmod(rest, hidden + 1)
    inputs = keras.Input((1000,))
    last = layers.Dense(outputs)(layers.Dense(hidden)(inputs))
    return keras.Model(inputs, [last, layers.Dense(left, use_bias=False)(inputs[:, :1])])


def test_a_model_of_206_538_153_parameters_has_826_mb_of_weights(large_model):
    assert large_model.count_params() == PARAMETERS
    estimated = estimate(large_model, gpus=8, batch_size=64, optimizer="adam")
    assert estimated.parameters == PARAMETERS
    assert estimated.weights == 4 * PARAMETERS
    assert estimated.optimizer == 2 * 4 * PARAMETERS
    assert str(estimated).splitlines()[0] == (
        "206,538,153 parameters: 826.15 MB of weights, 1,652.31 MB of optimizer (Adam)"
    )


def mixed():
    """Weights that are trained, state that is not, a seed and a counter."""
    steps = [layers.Conv2D(8, 3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Flatten(), layers.Dense(10)]
    return keras.Sequential([keras.Input((12, 12, 3)), *steps])


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(),
    "momentum": lambda: keras.optimizers.SGD(momentum=0.9),
    "Adam": lambda: keras.optimizers.Adam(amsgrad=True),
    "Adafactor": lambda: keras.optimizers.Adafactor(),
    "RMSprop": lambda: keras.optimizers.RMSprop(use_ema=True),
}
CHOSEN = [("SGD", True), ("momentum", False), ("Adam", True), ("Adafactor", False), ("RMSprop", True)]


@pytest.mark.parametrize(("name", "cpu_relocation"), some(itertools.product(OPTIMIZERS, [False, True]), CHOSEN))
def test_what_is_estimated_is_what_is_there_after_a_step(name, cpu_relocation):
    model, optimizer = mixed(), OPTIMIZERS[name]()
    estimated = estimate(model, DEVICES, 8, optimizer, cpu_relocation=cpu_relocation)
    assert {locate(variable) for variable in model.variables} == {"CPU:0"}  # nothing was moved
    assert not optimizer.built
    parallel = multi_gpu_model(model, gpus=DEVICES, cpu_relocation=cpu_relocation)
    parallel.compile(optimizer, "mse")
    parallel.train_on_batch(np.ones((8, 12, 12, 3)), np.ones((8, 10)))
    seen = {row.device: row for row in parallel.overview(8)}
    batch = 12 * 12 * 3 * 4, 10 * 4  # bytes of a row in and out
    for row in estimated:
        weights = [v for v in model.weights if locate(v) == row.device]
        assert row.parameters == sum(np.prod(v.shape, dtype=int) for v in weights)
        assert row.weights == 4 * row.parameters
        assert row.optimizer == seen[row.device].slots
        assert row.rows == (seen[row.device].rows or 0)
        assert row.received == seen[row.device].received + row.rows * batch[0]
        assert row.sent == seen[row.device].sent + row.rows * batch[1]
        sizes = (row.weights, row.optimizer, row.copies, row.gradients, row.activations, row.inputs)
        assert row.total == sum(sizes)
        assert row.inputs == row.rows * batch[0]


def test_the_optimizer_is_tried_on_the_host():
    devices = set()

    class Notes(keras.optimizers.SGD):
        def build(self, variables):
            devices.update(map(locate, variables))
            super().build(variables)

    with tf.device("CPU:2"):
        estimate(dense_model(), DEVICES, 8, Notes())
    assert devices == {"CPU:0"}


def test_a_compiled_model_brings_its_own_optimizer():
    model = dense_model()
    assert estimate(model, 2).optimizer == 4 * model.count_params()  # rmsprop, Keras' default
    model.compile("adam", "mse")
    assert estimate(model, 2).optimizer == 2 * 4 * model.count_params()
    assert estimate(model, 2, optimizer="sgd").optimizer == 0
    assert estimate(multi_gpu_model(model, 2), 2) == estimate(model, 2)


def test_gpus_need_not_be_there_and_may_be_one():
    assert [row.device for row in estimate(dense_model(), 100, 1000)][-1] == "CPU:99"
    alone = estimate(dense_model(), 1, 32)
    assert [(row.rows, row.copies, row.received) for row in alone] == [(32, 0, 32 * 3 * 4)]


def test_activations_grow_with_the_rows_and_not_with_the_devices():
    model = mixed()
    few, many = (estimate(model, 2, rows)[0].activations for rows in (32, 64))
    assert many == pytest.approx(2 * few, rel=0.02)  # sums over the batch do not grow
    assert estimate(model, 4, 128)[0].activations == many


def test_activations_of_a_chain_are_those_that_the_backward_pass_reads():
    inputs = keras.Input((100,))
    x = layers.Dense(200, activation="tanh", use_bias=False)(inputs)
    x = layers.Dense(300, activation="tanh", use_bias=False)(x)
    model = keras.Model(inputs, layers.Dense(50, use_bias=False)(x))
    kept = 100 + 200 + 300 + 50  # inputs, two results of tanh, outputs
    backward = 300  # the gradient of the last hidden layer; that of the outputs takes their place
    assert estimate(model, 1, 10)[0].activations == 10 * 4 * (kept + backward)


def test_memory_is_taken_from_the_first_writer_to_the_last_reader():
    @tf.function(autograph=False)
    def work(x):
        a = tf.linalg.matmul(x, x)  # 400 bytes
        b = tf.nn.relu(a)  # in place of a
        c = tf.linalg.matmul(b, b)
        return tf.linalg.matmul(c, b)  # b is needed until here

    ops = work.get_concrete_function(tf.TensorSpec((10, 10))).graph.get_operations()
    assert most_at_once(ops) == 3 * 400  # b, c and the result; x is free by then


def test_an_optimizer_that_is_assumed_is_named():
    model = keras.Sequential([keras.Input((1000,)), layers.Dense(1000)])
    assert str(estimate(model, 2, 5)).splitlines()[0].endswith("4.00 MB of optimizer (RMSprop, assumed)")
    model.compile("adam", "mse")
    assert str(estimate(model, 2, 5)).splitlines()[0].endswith("8.01 MB of optimizer (Adam)")


@pytest.mark.quick
def test_it_prints_as_a_table():
    text = str(estimate(keras.Sequential([keras.Input((1000,)), layers.Dense(1000)]), 2, 5, "sgd"))
    assert text.splitlines() == [
        "1,001,000 parameters: 4.00 MB of weights, 0.00 MB of optimizer (SGD)",
        "device  rows  parameters    weights  optimizer     copies  gradients  activations     inputs     total",
        " CPU:0     3   1,000,000    4.00 MB    0.00 MB  0.0040 MB    8.00 MB     0.024 MB   0.012 MB  12.04 MB",
        " CPU:1     2       1,000  0.0040 MB    0.00 MB    4.00 MB    4.01 MB     0.016 MB  0.0080 MB   8.04 MB",
        "",
        "device  in per step  out per step",
        " CPU:0      4.02 MB       4.02 MB",
        " CPU:1      4.01 MB       4.01 MB",
    ]


def test_a_model_without_symbolic_inputs_has_no_estimate_of_activations():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    model = Own()
    model(np.ones((1, 3)))
    estimated = estimate(model, 2, 8)
    assert [row.activations for row in estimated] == [None, None]
    assert " - " in str(estimated)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, None])
def test_a_bad_batch_size_is_refused(batch_size):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        estimate(dense_model(), 2, batch_size)
    assert str(error.value) == (
        "Expected `batch_size` to be a whole number of 1 or more, the rows that all GPUs together get. "
        f"Received: batch_size={batch_size!r}. Use `batch_size=32`."
    )


def test_a_model_that_is_no_template_is_refused():
    with pytest.raises(ValueError, match=r"Expected `model` to be a Keras model\. Received: 3 of type int"):
        estimate(3, 2)
    with pytest.raises(ValueError, match="Received: 'two' of type str"):
        estimate(dense_model(), "two")


def in_parts():
    x = keras.Input((100,))
    with on_device("CPU:1"):
        h = layers.Dense(200, activation="tanh", use_bias=False)(x)
    with on_device("CPU:2"):
        return keras.Model(x, layers.Dense(50, use_bias=False)(h))


@pytest.mark.parametrize("gpus", [[["CPU:1", "CPU:2"]] * 4, [["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]]])
def test_groups_take_what_is_there_after_a_step(gpus):
    model, optimizer = in_parts(), keras.optimizers.Adam()
    estimated = estimate(model, gpus, 16, optimizer)
    parallel = multi_gpu_model(model, gpus=gpus)
    parallel.compile(optimizer, "mse")
    parallel.train_on_batch(np.ones((16, 100)), np.ones((16, 50)))
    between = {"CPU:1": (0, 200), "CPU:2": (200, 0)}  # numbers of a row that come and go, forward
    for row, seen in zip(estimated, parallel.overview(16), strict=True):
        assert (row.device, row.rows, row.weights, row.optimizer) == (seen.device, seen.rows, seen.weights, seen.slots)
        assert row.slices == len(gpus) / len(set(map(tuple, gpus)))
        comes, goes = between["CPU:1" if row.device in ("CPU:1", "CPU:3") else "CPU:2"]
        ends = (100, 0) if goes else (0, 50)
        assert row.received == seen.received + 4 * row.rows * (
            comes + goes + ends[0]
        )  # activations, or gradients of them
        assert row.sent == seen.sent + 4 * row.rows * (comes + goes + ends[1])
        assert row.inputs == 0


def test_activations_are_those_of_the_parts_and_of_all_slices():
    one, two = estimate(in_parts(), [["CPU:1", "CPU:2"]] * 2, 20)
    assert one.per_slice == 10 * 4 * (200 + 200)  # the result of tanh, and its gradient
    assert two.per_slice == 10 * 4 * (50 + 200)  # outputs, and the gradient of what came
    assert [row.activations for row in (one, two)] == [2 * row.per_slice for row in (one, two)]


@pytest.mark.parametrize("first_part", [0, 1, 2])
def test_what_is_reshaped_between_two_parts_travels(first_part):
    steps = [layers.Dense(20, activation="tanh", use_bias=False), layers.Flatten(), layers.Reshape((5, 40))]
    x = h = keras.Input((10, 10))
    for number, step in enumerate(steps):
        with on_device("CPU:1" if number <= first_part else "CPU:2"):
            h = step(h)
    with on_device("CPU:2"):
        model = keras.Model(x, layers.Dense(2, use_bias=False)(h))
    one, two = estimate(model, [["CPU:1", "CPU:2"]], 3, "sgd")
    assert (one.received, one.sent) == (3 * 4 * (10 * 10 + 10 * 20), 3 * 4 * 10 * 20)
    assert (two.received, two.sent) == (3 * 4 * 10 * 20, 3 * 4 * (10 * 20 + 5 * 2))


@pytest.mark.parametrize("memory", ["24GB", -1, 0, float("nan"), float("inf"), True, None])
def test_memory_that_is_no_number_of_bytes_is_refused(memory):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        estimate(dense_model(), 2).slices_that_fit(memory)
    assert str(error.value) == (
        f"Expected `memory` to be the bytes of a device. Received: memory={memory!r}. Use `memory=24e9` for 24 GB."
    )


def test_how_many_slices_fit():
    few = estimate(in_parts(), [["CPU:1", "CPU:2"]] * 2, 20, "sgd")
    fitting = few.slices_that_fit(1_000_000)
    assert fitting > 2
    several = estimate(in_parts(), [["CPU:1", "CPU:2"]] * fitting, 10 * fitting, "sgd")
    assert max(row.total for row in several) <= 1_000_000
    more = estimate(in_parts(), [["CPU:1", "CPU:2"]] * (fitting + 1), 10 * (fitting + 1), "sgd")
    assert max(row.total for row in more) > 1_000_000
    assert str(few).splitlines()[-1] == "for each further slice of so many rows, a device needs up to 0.016 MB more"
    assert few.slices_that_fit(10) == 0
