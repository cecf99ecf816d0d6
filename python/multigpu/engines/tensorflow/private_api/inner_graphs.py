"""Replace the functions with which TensorFlow begins an inner graph, or computes a part again, in a replica.

Models call objects that `tf.function` and `tf.recompute_grad` have made before. Branches and loops come from many
public names (`tf.cond`, `tf.map_fn`, `tf.scan`, `if` under AutoGraph), which all call three private functions. None of
these can be replaced publicly.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import autograph_util
from tensorflow.python.ops import cond_v2, custom_gradient, while_v2

from multigpu.base.replaced import intercepted

_Function = type(tf.function(lambda: None))
_unspecified = tf.__internal__.autograph.control_status_ctx()  # this is read while nothing is traced


def handled(handler: Any, applies: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
    """Make a handler work in place of TensorFlow in a `with` block.

    Args:
        handler: its methods `function`, `branches`, `loop` and `custom_gradient` receive TensorFlow's own, then its
            arguments. `recomputed` receives the function of a `tf.recompute_grad`, then its arguments.
        applies: returns whether the running code is affected, and not code of another thread.
    """
    seams = [
        (_Function, "__call__", handler.function),
        (cond_v2, "cond_v2", handler.branches),
        (cond_v2, "indexed_case", handler.branches),
        (while_v2, "while_loop", handler.loop),
        (custom_gradient, "_graph_mode_decorator", functools.partial(_with_gradient, handler)),
        (custom_gradient, "_eager_mode_decorator", functools.partial(_with_gradient, handler)),
    ]
    return intercepted(seams, applies)


def _with_gradient(handler: Any, original: Callable, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call a function that has a custom gradient, or that `tf.recompute_grad` made."""
    if function.__qualname__ != "recompute_grad.<locals>.inner":
        return handler.custom_gradient(original, function, args, kwargs)
    return handler.recomputed(inspect.getclosurevars(function).nonlocals["f"], args, kwargs)


def is_compiled(function: Any) -> bool:
    """Return whether XLA compiles a `tf.function`."""
    return bool(function._jit_compile)


def fresh(function: Any) -> Any:
    """Return the same `tf.function` without traces."""
    return function._clone(None)


def as_written(function: Any) -> Callable[..., Any]:
    """Return the Python function of a `tf.function`, with `if` and `while` of tensors as ops if it does that."""
    if tf.executing_eagerly() or not function._autograph:
        return function.python_function
    converted = autograph_util.py_func_from_autograph(function.python_function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _unspecified:  # as TensorFlow traces it, in any surroundings
            return converted(*args, **kwargs)

    return call
