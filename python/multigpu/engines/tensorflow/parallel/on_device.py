"""Run parts of one model on different devices: layers called in `on_device()` run there, forward and backward."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import entered, replaced, set_to
from multigpu.engines.tensorflow.devices.logical import present_device
from multigpu.engines.tensorflow.parallel.placed_call import PlacedCall, keep_weights
from multigpu.engines.tensorflow.replicas.parts import part_scope
from multigpu.engines.tensorflow.replicas.scope import in_replica
from multigpu.engines.tensorflow.weights.home_parts import check_unplaced, parts_in_parts, placed_calls
from multigpu.private_api.functional import is_symbolic, run_in_place_of

_device: contextvars.ContextVar[str | None] = contextvars.ContextVar("device", default=None)


def on_device(device: str) -> contextlib.AbstractContextManager[None]:
    """Run layers and models that are called in this scope on `device`, forward and backward.

    This is model parallelism: one model whose parts are on different devices, for instance because it does not fit into
    one. In Keras 3, `tf.device` around a layer call in a functional model has no effect, because the layer runs later.
    `on_device()` remembers the device with the call. So a layer that you call twice can run on two devices with one set
    of weights. The device of its first call in such a scope stores the weights and the optimizer's slots, and sends the
    weights to the other device. Results are those of one device.

    `multi_gpu_model(model, gpus=[["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]])` replicates such a model, each replica on a
    group of devices. They replace the devices that you name here.

    The model is a plain Keras model: train, save and load it as usual. A file contains no devices, so a loaded model
    runs on one device. To use several devices again, run the code that builds the model, and load the weights into it.

    Args:
        device: name of a device, such as `"GPU:0"` or `"/gpu:0"`; `"CPU:0"` is the CPU.

    Returns:
        A context manager, for `with`.

    Raises:
        ValueError: the device does not exist, or you call `add()` of a Sequential in the scope, which would call all
            layers again.

    Example:
        >>> import keras, multigpu
        >>> multigpu.simulate_gpus(2)  # does nothing on a machine with two GPUs
        >>> first, second = keras.Input((140, 256)), keras.Input((140, 256))
        >>> encode = keras.layers.LSTM(64)
        >>> with multigpu.on_device("GPU:0"):
        ...     a = encode(first)
        >>> with multigpu.on_device("GPU:1"):
        ...     b = encode(second)
        >>> with multigpu.on_device("CPU:0"):
        ...     both = keras.layers.concatenate([a, b])
        >>> model = keras.Model([first, second], keras.layers.Dense(1, activation="sigmoid")(both))
    """
    cure = "Name a device of this machine; to try things out without GPUs, call `multigpu.simulate_gpus(2)` first."
    return _scope(present_device(device, cure))


@contextlib.contextmanager
def _scope(device: str) -> Iterator[None]:
    with set_to(_device, device), part_scope(device) or tf.device(device), _calls_watched():
        yield


def _calls_watched() -> contextlib.AbstractContextManager[None]:
    """Make layers and operations that the user calls in the scope run on its device.

    Keras has no public way to observe calls, so these methods are replaced during the scope.
    """
    instead: list[tuple[type, str, Callable]] = [
        (keras.Layer, "__call__", _call_layer),
        (keras.Operation, "symbolic_call", _call_operation),
        (keras.Sequential, "build", lambda device, build, *args, **kwargs: build(*args, **kwargs)),  # calls its layers
        (keras.Sequential, "add", _add),
    ]
    return entered(replaced(owner, name, _in_place_of(vars(owner)[name], method)) for owner, name, method in instead)


def _in_place_of(original: Callable, replacement: Callable) -> Callable:
    """Return a method that runs `replacement` in the scope itself, and `original` in calls inside of it."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        device = _device.get()
        if device is None:
            return original(self, *args, **kwargs)
        with set_to(_device, None):
            return replacement(device, original, self, *args, **kwargs)

    return method


def _call_layer(device: str, original: Callable, layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
    _check_one_place(layer)
    if not is_symbolic((args, kwargs)):
        return _call_now(device, original, layer, args, kwargs)
    new = not layer.variables
    outputs = original(layer, *args, **kwargs)
    keep_weights(layer, device, new=new)
    run_in_place_of(layer, PlacedCall(layer, device))
    return outputs


def _check_one_place(layer: keras.Layer) -> None:
    """Raise an error for parts in a model that runs as a whole. A model built in one scope is a whole."""
    if len({placement.device for _, placement in placed_calls(layer)}) > 1:
        check_unplaced(layer)


def _call_now(device: str, original: Callable, layer: keras.Layer, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Make a call with values, as in a subclassed model: in a traced step, also its backward pass on the device."""
    if in_replica():
        if part_scope(device) is None:
            raise parts_in_parts(layer.name)
        return original(layer, *args, **kwargs)
    if layer.built:
        keep_weights(layer, device)
    if tf.executing_eagerly() or not layer.built:
        return original(layer, *args, **kwargs)
    return PlacedCall(layer, device)(*args, **kwargs)


def _call_operation(device: str, original: Callable, operation: keras.Operation, *args: Any, **kwargs: Any) -> Any:
    outputs = original(operation, *args, **kwargs)
    run_in_place_of(operation, PlacedCall(operation, device))
    return outputs


def _add(device: str, original: Callable, model: keras.Sequential, layer: keras.Layer, rebuild: bool = True) -> None:
    if rebuild:
        raise refuse(
            "layers and models to be called in `on_device()`",
            f"`add()` of the Sequential {model.name!r}, which calls all of its layers again",
            f"Call them as functions, `with on_device({device!r}): x = layer(x)`, and make a `keras.Model(inputs, "
            "outputs)` of it.",
        )
    original(model, layer, rebuild)
