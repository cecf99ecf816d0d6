"""An optimizer's update in a step: it builds the slots of what it updates, and reads single numbers once.

Single numbers, such as the optimizer's counter, are on the CPU. Keras reads them again for each weight. On GPUs, each
reading would be a separate copy, for which the GPU waits.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.weights.place_locate import build_slots

READ_ONCE = ("iteration", "learning_rate", "dynamic_scale")
ASSIGN = ("assign", "assign_add", "assign_sub")


@contextlib.contextmanager
def prepared_updates(optimizers: Sequence[keras.Optimizer]) -> Iterator[None]:
    """Make first updates build slots beside their weights, and all updates share one tensor for each single number.

    They share it while a step is traced. So values that depend only on single numbers, such as Adam's correction, are
    the same for all weights, and TensorFlow computes them once.
    """
    with contextlib.ExitStack() as stack:
        for optimizer in optimizers:
            inner = getattr(optimizer, "inner_optimizer", None)  # the inner optimizer of one that scales the loss
            for each in (optimizer, inner):
                if each is not None:
                    stack.enter_context(replaced(each, "apply", functools.partial(_apply, each.apply, each)))
            if inner is not None and not tf.executing_eagerly():
                stack.enter_context(replaced(optimizer, "check_finite", _are_finite))
        yield


def _apply(
    apply: Callable[..., Any], optimizer: keras.Optimizer, grads: Any, trainable_variables: Any = None, **kwargs: Any
) -> Any:
    build_slots(optimizer, trainable_variables or ())
    if tf.executing_eagerly():
        return apply(grads, trainable_variables, **kwargs)
    scalars = {id(v): backing_variable(v) for v in optimizer.variables if v.name in READ_ONCE}
    with entered(map(_read_once, scalars.values())):
        return apply(grads, trainable_variables, **kwargs)


@contextlib.contextmanager
def _read_once(variable: tf.Variable) -> Iterator[None]:
    """Make a variable keep the value that it has now, inside a `with` block, until it is assigned."""
    with tf.device(variable.device):
        known = [tf.identity(variable)]
    read = variable.value

    def assigning(assign: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            known.clear()
            return assign(*args, **kwargs)

        return call

    instead = {"value": lambda: known[0] if known else read()}
    instead |= {name: assigning(getattr(variable, name)) for name in ASSIGN}
    with entered(replaced(variable, name, method) for name, method in instead.items()):
        yield


def _are_finite(gradients: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """Return whether gradients are finite, for Keras' loss scaling: one answer per device, not per gradient."""
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
