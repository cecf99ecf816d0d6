"""Run each op of the step on the device of its inputs, so that the update of a weight runs on the weight's device.

Keras' optimizers name no device, and all ops without a device run on the same one. Placing ops in each optimizer would
mean to rewrite all optimizers. Placing each op covers every optimizer, clipping, decay and averaging at once.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.devices.logical import short_name, visible_devices
from multigpu.engines.tensorflow.private_api.graph_passes import optimized_once
from multigpu.engines.tensorflow.replicas.open_shapes import captured
from multigpu.engines.tensorflow.weights.place_locate import build_slots


@contextlib.contextmanager
def colocate_ops(default: str) -> Iterator[None]:
    """Place ops without a device: on the one device of all their tensors, or on `default`.

    Scalars and constants, such as a learning rate or the axes of a sum, do not count: they are copied. This works while
    a function is traced. Outside of functions, ops run on `default`.
    """
    if tf.executing_eagerly():
        with tf.device(default):
            yield
        return
    with (
        _OneReplica(tf.distribute.get_strategy(), 0),
        tf.device(None),
        tf.compat.v1.device(lambda op: op.device or _device_for(op, default)),
    ):
        yield


def on_host(function: Callable[..., Any], training: bool) -> Callable[..., Any]:
    """Return Keras' function of steps with its own work, such as the request for a batch, on the CPU.

    Args:
        function: the function of steps.
        training: whether they are training steps.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with tf.device("CPU:0"), optimized_once(training):
            return function(*args)

    return call


def update_beside_weights(optimizer: keras.Optimizer) -> None:
    """Make an optimizer of a plain model with Keras' training step update each weight on its device."""
    optimizer.__dict__["apply"] = functools.partial(_apply, optimizer)  # set so, Keras does not track it


def _apply(optimizer: keras.Optimizer, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
    apply = functools.partial(type(optimizer).apply, optimizer, grads, trainable_variables, **kwargs)
    if tf.executing_eagerly():
        return apply()
    build_slots(optimizer, trainable_variables or ())
    with colocate_ops(visible_devices()["others"][0]):
        return apply()


def _device_for(op: tf.Operation, default: str) -> str:
    """Return the device for an op without one. "" for a constant, which TensorFlow makes where it uses it."""
    return "" if op.type == "Const" else f"/device:{_device_of_inputs(op) or default}"


def _device_of_inputs(op: tf.Operation) -> str:
    """Return the one device of the op's tensors, or "" if there are several or none is known."""
    devices = {short_name(device) for device in map(_device_of, _tensors(op)) if "/device:" in device}
    return devices.pop() if len(devices) == 1 else ""


def _tensors(op: tf.Operation) -> list[tf.Tensor]:
    tensors = [tensor for tensor in op.inputs if not _is_constant(tensor.op)]
    return [tensor for tensor in tensors if tensor.shape.rank != 0 or tensor.dtype == tf.resource]


def _is_constant(op: tf.Operation) -> bool:
    """Return whether a tensor is a constant, or made only of constants, such as ones of some shape."""
    return op.type == "Const" or (len(op.inputs) > 0 and all(tensor.op.type == "Const" for tensor in op.inputs))


def _device_of(tensor: tf.Tensor) -> str:
    """Return the device that makes a tensor; for a `tf.py_function`, only the task is known.

    A function's captured tensors are made outside of it.
    """
    if hasattr(tensor, "numpy"):  # eager: the handle of a variable
        return tensor.device
    if tensor.op.type == "ReadVariableOp":  # has no device, and runs on the variable's
        return _device_of(tensor.op.inputs[0])
    if tensor.op.type == "Placeholder":
        outer = captured(tensor)
        return "" if outer is None else _device_of(outer)
    return tensor.op.device


class _OneReplica(tf.distribute.ReplicaContext):
    """A strategy for Keras' optimizers. TensorFlow's default would lead all gradients through one op."""

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Return the value: gradients are already reduced."""
        return value


@contextlib.contextmanager
def eager_variables(device: str) -> Iterator[None]:
    """Make variables eagerly, on `device`, inside a `with` block."""

    def make(next_creator: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        if not callable(arguments["initial_value"]):
            return next_creator(**arguments)  # a value computed in the function cannot leave it
        arguments["experimental_enable_variable_lifting"] = False  # TensorFlow's own way traces twice
        with tf.init_scope(), tf.device(device):
            return next_creator(**arguments)

    with tf.variable_creator_scope(make):
        yield
