"""place and locate: put a weight on a device, with the slots of its optimizer, and find its device."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.devices.logical import short_name
from multigpu.engines.tensorflow.private_api.variables import backing_variable, give_memory
from multigpu.engines.tensorflow.weights.forwarding import forward, spoil


def num_bytes(variable: keras.Variable) -> int:
    """Return the bytes that a variable takes in memory."""
    return math.prod(variable.shape) * max(stored_dtype(variable).size or 0, 1)


def locate(variable: keras.Variable) -> str:
    """Return the name of the device that owns a variable, such as `"GPU:0"`."""
    return short_name(backing_variable(variable).device or "CPU:0")


def read(variable: keras.Variable) -> tf.Tensor:
    """Return the stored value of a variable, read by its owner, whatever Keras' scope is (autocast, stateless)."""
    with tf.device(locate(variable)):
        return tf.convert_to_tensor(backing_variable(variable))


def stored_dtype(variable: keras.Variable) -> tf.DType:
    """Return the type in which a variable is stored. Under autocast, `variable.dtype` differs."""
    return backing_variable(variable).dtype


def memory(variable: keras.Variable | tf.Variable) -> int:
    """Return a number for the memory in which a variable is stored now. It changes when the variable moves."""
    return id((backing_variable(variable) if isinstance(variable, keras.Variable) else variable).handle)


def place(destinations: Iterable[tuple[keras.Variable, str]]) -> list[keras.Variable]:
    """Move variables to devices, in place and with their values. Return those that had to move.

    The objects of Keras and of TensorFlow stay the same, so optimizers still know them. Functions that were traced
    earlier use the new memory.
    """
    wanted = {id(backing_variable(variable)): (variable, device) for variable, device in destinations}
    away = [(variable, device) for variable, device in wanted.values() if locate(variable) != device]
    moved = [(backing_variable(variable), backing_variable(variable).handle) for variable, _ in away]
    for variable, device in away:
        _move(backing_variable(variable), device)
    forward(moved)
    return [variable for variable, _ in away]


def _move(variable: tf.Variable, device: str) -> None:
    old = variable.handle
    with tf.init_scope():
        with tf.device(device):
            give_memory(variable, tf.Variable(tf.identity(variable), dtype=variable.dtype).handle)
        spoil(old, variable.dtype)


def build_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Build an optimizer that is not built yet, with its slots on the devices of the weights.

    Keras would do this inside the trace of the first step, where TensorFlow puts all slots on one device. So during a
    trace, this runs outside of it.
    """
    if weights and not optimizer.built:
        outside_of_functions(_build, optimizer, weights)


def outside_of_functions(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function where no trace forbids to make variables: during one, in a separate thread."""
    if tf.executing_eagerly():
        return work(*arguments)
    with ThreadPoolExecutor(1) as outside:  # there, Keras has its initial settings
        outside.submit(keras.config.set_dtype_policy, keras.config.dtype_policy()).result()
        return outside.submit(work, *arguments).result()


def _build(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    with keras.name_scope(optimizer.name, caller=optimizer):  # as in Keras' first step
        optimizer.build(weights)
    place_slots(optimizer, weights)


def place_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Place the optimizer's variables of each weight on the weight's device, and all others on the CPU."""
    homes = {id(slot): locate(weight) for slot, weight in slots_of(optimizer, weights)}
    place((variable, homes.get(id(variable), "CPU:0")) for variable in optimizer.variables)


def slots_of(
    optimizer: keras.Optimizer, weights: Sequence[keras.Variable]
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Return the optimizer's variables that belong to one weight each, with their weights, found by their names.

    Integers are left out, because GPUs do not store them. Adafactor's rows and columns have only the weight's short
    name, and come right before a slot of that weight.
    """
    named = sorted(
        ((weight.path.replace("/", "_") + "_", weight) for weight in weights), key=lambda pair: -len(pair[0])
    )
    pairs: list[tuple[keras.Variable, keras.Variable]] = []
    for slot in reversed([slot for slot in optimizer.variables if stored_dtype(slot).is_floating]):
        weight = next((weight for name, weight in named if slot.name.startswith(name)), None)
        if weight is None and pairs and slot.shape and slot.name == pairs[-1][1].name:
            weight = pairs[-1][1]
        if weight is not None:
            pairs.append((slot, weight))
    return pairs[::-1]
