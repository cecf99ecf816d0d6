"""place and locate: put a weight on a device, and find its device."""

import math
from collections.abc import Iterable

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
