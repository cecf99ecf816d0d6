"""place and locate: where a weight is put, and where it is found."""

import math
from collections.abc import Iterable

import keras
import tensorflow as tf

from multigpu.devices.logical import short_name
from multigpu.private_api.variables import backing_variable, replace_backing_variable


def num_bytes(variable: keras.Variable) -> int:
    """Bytes that a variable takes in memory."""
    return math.prod(variable.shape) * max(stored_dtype(variable).size or 0, 1)


def locate(variable: keras.Variable) -> str:
    """Name of the device that owns a variable, such as `"GPU:0"`."""
    return short_name(backing_variable(variable).device or "CPU:0")


def read(variable: keras.Variable) -> tf.Tensor:
    """The stored value of a variable, read by its owner, whatever scope Keras is in (autocast, stateless)."""
    with tf.device(locate(variable)):
        return tf.convert_to_tensor(backing_variable(variable))


def stored_dtype(variable: keras.Variable) -> tf.DType:
    """The type in which a variable is stored. `variable.dtype` is another one under autocast."""
    return backing_variable(variable).dtype


def memory(variable: keras.Variable | tf.Variable) -> int:
    """A number for the memory in which a variable is stored now, which changes when it is moved."""
    return id(backing_variable(variable) if isinstance(variable, keras.Variable) else variable)


def place(variables: Iterable[keras.Variable], device: str) -> bool:
    """Moves variables to a device, in place and with their values. Returns whether any had to move.

    The Keras objects stay the same ones. Optimizers that know a variable still do, since the moved variable keeps the
    id by which they do. A function traced earlier holds the old memory: it is freed, so that such a function fails
    aloud instead of reading stale values.
    """
    away = [variable for variable in variables if locate(variable) != device]
    for variable in away:
        _move(variable, device)
    return bool(away)


def _move(variable: keras.Variable, device: str) -> None:
    old = backing_variable(variable)
    with tf.init_scope(), tf.device(device):
        moved = tf.Variable(
            tf.identity(old),
            dtype=old.dtype,
            trainable=old.trainable,
            name=variable.name,
            aggregation=old.aggregation,
            synchronization=old.synchronization,
        )
    replace_backing_variable(variable, moved)
    tf.raw_ops.DestroyResourceOp(resource=old.handle, ignore_lookup_error=True)
