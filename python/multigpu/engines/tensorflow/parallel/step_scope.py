"""An op of the step runs where its input is: so the update of a weight runs where the weight is.

Keras' optimizers name no device, and everything that names none lands on one. Telling each optimizer where to do what
would mean rewriting them all; telling each op covers every optimizer, clipping, decay and averaging at once.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.devices.logical import short_name, visible_devices
from multigpu.engines.tensorflow.private_api.graph_passes import optimized_once


@contextlib.contextmanager
def colocate_ops(default: str) -> Iterator[None]:
    """Places ops that name no device: on the device that all their tensors come from, or else on `default`.

    Scalars and constants do not count: a learning rate, or the axes of a sum, go where they are needed. Works while a
    function is traced; outside of one, ops run on `default`.
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


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keras' function of one or several steps. What it does around them, such as to ask for a batch, is for the CPU."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with tf.device("CPU:0"), optimized_once():
            return function(*args)

    return call


def update_beside_weights(optimizer: keras.Optimizer) -> None:
    """Has an optimizer of a plain model, whose training step is Keras' own, update each weight where it is."""
    optimizer.__dict__["apply"] = functools.partial(_apply, optimizer)  # set so, Keras does not track it


def _apply(optimizer: keras.Optimizer, *args: Any, **kwargs: Any) -> Any:
    apply = functools.partial(type(optimizer).apply, optimizer)
    if tf.executing_eagerly():
        return apply(*args, **kwargs)
    with colocate_ops(visible_devices()["others"][0]):
        return apply(*args, **kwargs)


def _device_for(op: tf.Operation, default: str) -> str:
    """The device for an op that names none; none for a constant, which TensorFlow makes where it is used."""
    return "" if op.type == "Const" else f"/device:{_device_of_inputs(op) or default}"


def _device_of_inputs(op: tf.Operation) -> str:
    """The one device that the op's tensors come from, or "" if there are several or none is known."""
    devices = {short_name(device) for device in map(_device_of, _tensors(op)) if device}
    return devices.pop() if len(devices) == 1 else ""


def _tensors(op: tf.Operation) -> list[tf.Tensor]:
    tensors = [tensor for tensor in op.inputs if not _is_constant(tensor.op)]
    return [tensor for tensor in tensors if tensor.shape.rank != 0 or tensor.dtype == tf.resource]


def _is_constant(op: tf.Operation) -> bool:
    """Return whether this is a constant, or made of constants alone, such as ones of some shape."""
    return op.type == "Const" or (len(op.inputs) > 0 and all(tensor.op.type == "Const" for tensor in op.inputs))


def _device_of(tensor: tf.Tensor) -> str:
    """Where a tensor is made. What a function captured is made outside of it."""
    if hasattr(tensor, "numpy"):  # eager: the handle of a variable
        return tensor.device
    if tensor.op.type == "ReadVariableOp":  # names no device, and runs where the variable is
        return _device_of(tensor.op.inputs[0])
    if tensor.op.type == "Placeholder":
        for outer, inner in tensor.graph.captures:
            if inner is tensor:
                return _device_of(outer)
        return ""
    return tensor.op.device


class _OneReplica(tf.distribute.ReplicaContext):
    """A strategy for Keras' optimizers, in place of TensorFlow's default, which leads all gradients through one op."""

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Gives back the value: gradients are reduced already."""
        return value


@contextlib.contextmanager
def eager_variables(device: str) -> Iterator[None]:
    """Makes variables eagerly, on `device`, while it lasts."""

    def make(next_creator: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        if not callable(arguments["initial_value"]):
            return next_creator(**arguments)  # a value that was computed in the function cannot leave it
        arguments["experimental_enable_variable_lifting"] = False  # TensorFlow's own way, which traces twice
        with tf.init_scope(), tf.device(device):
            return next_creator(**arguments)

    with tf.variable_creator_scope(make):
        yield
