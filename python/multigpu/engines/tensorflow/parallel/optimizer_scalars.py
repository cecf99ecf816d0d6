"""Single numbers of an optimizer, such as its counter: on the CPU, read once in a step, and sent once to each device.

Keras reads them again for each weight. On GPUs, each reading would be a copy of its own, for which the GPU waits.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.replaced import replaced
from multigpu.engines.tensorflow.private_api.variables import backing_variable

READ_ONCE = ("iteration", "learning_rate", "dynamic_scale")  # names of those that are not assigned before the last read


@contextlib.contextmanager
def scalars_read_once(optimizer: keras.Optimizer | None) -> Iterator[None]:
    """While a step is traced, updates of weights share one tensor for each of these variables.

    So what is computed from them alone, such as the correction of Adam, is the same for all weights, and TensorFlow
    computes it once.
    """
    inner = getattr(optimizer, "inner_optimizer", None)  # of one that scales the loss
    with contextlib.ExitStack() as stack:
        for each in (optimizer, inner):
            if each is not None and not tf.executing_eagerly():
                stack.enter_context(replaced(each, "apply", functools.partial(_apply, each.apply, each)))
        if inner is not None and not tf.executing_eagerly():
            stack.enter_context(replaced(optimizer, "check_finite", _are_finite))
        yield


def _apply(apply: Callable[..., Any], optimizer: keras.Optimizer, *args: Any, **kwargs: Any) -> Any:
    scalars = {id(v): backing_variable(v) for v in optimizer.variables if v.name in READ_ONCE}
    with contextlib.ExitStack() as stack:
        for variable in scalars.values():
            with tf.device(variable.device):
                value = tf.identity(variable)
            stack.enter_context(replaced(variable, "value", lambda value=value: value))
        return apply(*args, **kwargs)


def _are_finite(gradients: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Whether gradients are finite, as Keras' loss scaling asks it: one answer of each device, not of each gradient."""
    of_device: dict[str, list[tf.Tensor]] = {}
    for gradient in gradients:
        if gradient is not None:
            finite = keras.ops.all(keras.ops.isfinite(gradient))
            of_device.setdefault(finite.device, []).append(finite)
    answers = []
    for device, flags in of_device.items():
        with tf.device(device or None):
            answers.append(tf.reduce_all(tf.stack(flags)))
    return tf.reduce_all(tf.stack(answers))
