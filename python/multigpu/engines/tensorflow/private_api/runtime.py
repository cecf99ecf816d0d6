"""TensorFlow's runtime: whether it has started, its memory limits, and the workers that it talks to.

The only public way to workers, `tf.distribute.MultiWorkerMirroredStrategy`, starts TensorFlow, after which devices
cannot be configured.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context


def devices_are_fixed() -> bool:
    """Return whether TensorFlow's devices can no longer be configured. Public ways to ask start them."""
    return context.context()._initialized


def has_started() -> bool:
    """Return whether TensorFlow has opened its devices and ports."""
    return context.context()._context_handle is not None


def memory_limits() -> dict[str, int]:
    """Return the bytes that TensorFlow may use on each device, by its short name."""
    return {device.name.rsplit("device:", 1)[-1]: device.memory_limit for device in device_lib.list_local_devices()}


def config() -> Any:
    """Return the current settings of sessions and devices, as a ConfigProto."""
    return context.context().config


def settings_of(session: Any) -> Any:
    """Return the settings with which a session of TensorFlow 1 was made. None for other objects."""
    return getattr(session, "_config", None)


def listen(server: Any, leader: str, task: str) -> None:
    """Make TensorFlow listen as one task of a cluster when it starts.

    Args:
        server: its `SerializeToString()` returns the definition of the server when TensorFlow starts.
        leader: the task that leads the collective ops.
        task: the one task whose devices this process sees: its own.
    """
    this = context.context()
    this.configure_collective_ops(collective_leader=leader, scoped_allocator_enabled_ops=(), device_filters=(task,))
    this.enable_collective_ops(server)


def server() -> Any:
    """Return the argument of `listen()`, or None."""
    return context.context()._collective_ops_server_def


def is_alive(task: str, milliseconds: int) -> bool:
    """Return whether another task answers, and is the same process as before."""
    try:
        context.context().check_collective_ops_peer_health(task, timeout_in_ms=milliseconds)
    except tf.errors.OpError:
        return False
    return True


def abort_collective_ops(message: str) -> None:
    """End the collective ops of this process, now and later, and of the tasks that receive from it."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)
