"""What is sent between devices: slices, weights, gradients, outputs, each once; read from executed graphs."""

import math
from collections import Counter

import keras
import pytest
import tensorflow as tf
from cases import soak, some
from equality import dense_model, mean_squared, random_rows
from executed_graphs import executed, sent_tensors
from keras import layers, optimizers

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate, slots_of

DEVICES = ["CPU:1", "CPU:2", "CPU:3"]  # none of them the default device, where stray ops would land
ROWS = dict(zip(DEVICES, [4, 3, 3], strict=True))  # of a batch of 10
X, Y = random_rows(20, 6), random_rows(20, 2, seed=1)


def net():
    """Weights of many shapes, none of which is that of a slice."""
    hidden = [layers.Dense(units, activation="tanh") for units in (7, 11)]
    return keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(2)])


def two_inputs():
    left, right = keras.Input((6,)), keras.Input((5,))
    return keras.Model([left, right], layers.Dense(2)(layers.Concatenate()([left, right])))


def batches(*arrays):
    """Batches of 10 rows and no other, so that the graphs know the shapes of all that moves."""
    return tf.data.Dataset.from_tensor_slices(arrays).batch(10, drop_remainder=True)


def step_of(template, optimizer="sgd", **arguments):
    parallel = multi_gpu_model(template, gpus=DEVICES, **arguments)
    parallel.compile(optimizer, "mse")
    return parallel, executed(lambda: parallel.fit(batches(X, Y), verbose=0, shuffle=False))


def arrays_between(run, start, end):
    """Shapes of what went from one device to another, scalars aside."""
    ends = [t for t in sent_tensors(run) if t.shape != () and (t.start, t.end) == (start, end)]
    return sorted(t.shape for t in ends)


@pytest.mark.quick
def test_each_slice_is_sent_once_and_each_output_comes_back_once():
    parallel = multi_gpu_model(two_inputs(), gpus=DEVICES)
    x = batches((X, random_rows(20, 5)))
    run = executed(lambda: parallel.predict(x, verbose=0))
    for device, rows in ROWS.items():
        assert arrays_between(run, "CPU:0", device) == [(rows, 5), (rows, 6)]
        assert arrays_between(run, device, "CPU:0") == [(rows, 2)]


def test_a_step_sends_slices_and_the_gradients_of_their_outputs():
    _, run = step_of(net())
    for device, rows in ROWS.items():
        assert arrays_between(run, "CPU:0", device) == [(rows, 2), (rows, 6)]
        assert arrays_between(run, device, "CPU:0") == [(rows, 2)]


@pytest.mark.parametrize("cpu_merge", [True, False])
def test_no_device_receives_the_whole_batch(cpu_merge):
    _, run = step_of(net(), cpu_merge=cpu_merge)
    assert all(t.shape[0] < 10 for t in sent_tensors(run) if t.shape and t.shape[1:] == (6,))
    # The loss is taken where outputs are merged: only there do targets go.
    assert [t.end for t in sent_tensors(run) if t.shape == (10, 2)] == ([] if cpu_merge else ["CPU:1"])


def test_weights_and_gradients_move_the_bytes_that_the_overview_tells():
    parallel, run = step_of(net())
    between = [t for t in sent_tensors(run) if {t.start, t.end} <= set(DEVICES)]
    for row in parallel.overview():
        assert row.received == sum(t.num_bytes for t in between if t.end == row.device)
        assert row.sent == sum(t.num_bytes for t in between if t.start == row.device)


def test_a_frozen_weight_is_sent_and_has_no_gradient():
    template = net()
    for layer in template.layers[:-1]:
        layer.trainable = False
    trained = sum(math.prod(weight.shape) for weight in template.trainable_weights)
    _, run = step_of(template)
    between = sum(t.num_bytes for t in sent_tensors(run) if {t.start, t.end} <= set(DEVICES))
    assert between == 4 * (len(DEVICES) - 1) * (template.count_params() + trained)


# The least that has to be sent ----------------------------------------------------------------------------------------


def sent_in_a_step(template: keras.Model, gpus: int):
    parallel = multi_gpu_model(template, gpus=gpus)
    parallel.compile(**mean_squared())
    uneven = tf.data.Dataset.from_tensor_slices((random_rows(20, 3), random_rows(20, 2))).batch(8)
    return sent_tensors(executed(lambda: parallel.fit(uneven, shuffle=False, verbose=0)))


@pytest.mark.parametrize("gpus", [2, soak(4), 8])
def test_bytes_of_weights_and_gradients_are_those_of_a_ring(gpus):
    template = dense_model()
    packed = [t for t in sent_in_a_step(template, gpus) if t.shape and t.num_bytes]
    weights = sum(weight.nbytes for weight in template.get_weights())
    # a ring moves 2·(N−1)/N·W to each of N devices; every byte is sent once and received once
    assert sum(t.num_bytes for t in packed) == 2 * (gpus - 1) * weights


@pytest.mark.parametrize("gpus", [soak(2), 4, soak(8)])
def test_a_slice_its_outputs_and_their_gradient_are_sent_once_for_each_replica(gpus):
    arrays = [t for t in sent_in_a_step(dense_model(), gpus) if t.dtype != "int32"]  # rows are counted
    of_the_batch = [t for t in arrays if t.num_bytes is None]
    assert len(of_the_batch) == 3 * (gpus - 1)
    assert all("CPU:0" in (t.start, t.end) for t in of_the_batch)


def test_numbers_of_the_optimizer_come_from_the_cpu_and_not_by_way_of_a_gpu():
    _, run = step_of(net(), cpu_merge=False)
    numbers = Counter((t.start, t.end) for t in sent_tensors(run) if t.shape == () and t.dtype == "float32")
    assert all(numbers["CPU:0", device] for device in DEVICES)  # the learning rate
    assert not [ends for ends in numbers if "CPU:0" not in ends]


# The update -----------------------------------------------------------------------------------------------------------


def per_layer():
    each = optimizers.OptimizerMap(optimizers.Adam())
    each[".*dense_1/.*"] = optimizers.SGD(momentum=0.9)
    return optimizers.MultiOptimizer(each)


def adam(**arguments):
    return lambda: optimizers.Adam(**arguments)


UPDATES = {
    "SGD with momentum": lambda: optimizers.SGD(momentum=0.9, nesterov=True),
    "RMSprop": lambda: optimizers.RMSprop(centered=True, momentum=0.5),
    "Adam": adam(amsgrad=True),
    "AdamW": optimizers.AdamW,
    "Adagrad": optimizers.Adagrad,
    "Adadelta": optimizers.Adadelta,
    "Adamax": optimizers.Adamax,
    "Nadam": optimizers.Nadam,
    "Lion": optimizers.Lion,
    "Ftrl": optimizers.Ftrl,
    "ScheduleFreeAdamW": optimizers.ScheduleFreeAdamW,
    "MultiOptimizer": per_layer,
    "moving average": adam(use_ema=True),
    "moving average that overwrites": adam(use_ema=True, ema_overwrite_frequency=2),
    "clipvalue": adam(clipvalue=0.1),
    "weight decay": adam(weight_decay=0.1),
    "Adafactor": optimizers.Adafactor,
    "Lamb": optimizers.Lamb,
    "Muon": optimizers.Muon,
    "loss scaling": lambda: optimizers.LossScaleOptimizer(optimizers.Adam()),
    "clipnorm": adam(clipnorm=0.1),
    "global_clipnorm": adam(global_clipnorm=0.1),
}


def arrays_moved(run):
    """All that was sent but single numbers, and the step counter, whose shape a graph does not always tell.

    A constant that several weights share, such as a 1 in a clipping of norms, is made on the CPU.
    """
    return Counter(
        (t.start, t.end, t.shape, t.dtype)
        for t in sent_tensors(run)
        if t.shape not in ((), (1,)) and t.dtype != "int32"
    )


@pytest.fixture(scope="module")
def plain():
    """A step of plain SGD, which has nothing but weights and their gradients to move."""
    return step_of(net())[1]


ONE_OF_EACH = ["Adam", "Adafactor", "Muon", "MultiOptimizer", "loss scaling", "global_clipnorm"]


@pytest.mark.parametrize("update", some(UPDATES, ONE_OF_EACH))
def test_an_update_runs_beside_its_weight_and_moves_no_more_arrays_than_plain_sgd(update, plain):
    parallel, run = step_of(net(), UPDATES[update]())
    assert arrays_moved(run) == arrays_moved(plain)
    pairs = slots_of(parallel.optimizer, parallel.template.trainable_weights)
    assert all(locate(slot) == locate(weight) for slot, weight in pairs)
    of_weights = {id(slot) for slot, _ in pairs}
    assert {locate(v) for v in parallel.optimizer.variables if id(v) not in of_weights} == {"CPU:0"}
    assert all(id(slot) in of_weights for slot in parallel.optimizer.variables if slot.shape != ())
    # The arithmetic of the update, not only the assignment, which TensorFlow places by itself.
    arithmetic = run.devices_of("Mul", "Sub", "Neg", "Sign")
    assert min(arithmetic[device] for device in DEVICES) >= 2
    assert set(DEVICES) <= set(run.devices_of("AssignSubVariableOp", "AssignAddVariableOp", "AssignVariableOp"))
