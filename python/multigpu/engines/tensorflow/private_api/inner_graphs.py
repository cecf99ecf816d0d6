"""Where TensorFlow begins a graph inside of another one, or computes a part of it again: what a replica does instead.

A function is called as what `tf.function` made of it, and a part that is computed again as what `tf.recompute_grad`
did, however long before. Branches and loops come from many public names (`tf.cond`, `tf.map_fn`, `tf.scan`, `if` under
AutoGraph), which all end in three private functions. None of it has a public seam.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import autograph_util
from tensorflow.python.ops import cond_v2, custom_gradient, while_v2

from multigpu.base.replaced import replaced

_Function = type(tf.function(lambda: None))
_unspecified = tf.__internal__.autograph.control_status_ctx()  # while nothing is traced, which is when this is read
_one_at_a_time = threading.RLock()  # two traces must not mistake each other's stand-in for the original


@contextlib.contextmanager
def handled(handler: Any, applies: Callable[[], bool]) -> Iterator[None]:
    """While it lasts, a handler does what TensorFlow would.

    Args:
        handler: its methods `function`, `branches`, `loop` and `recomputed` take TensorFlow's own, then its arguments.
        applies: whether code that runs now is meant, and not that of another thread.
    """
    seams = [
        (_Function, "__call__", handler.function),
        (cond_v2, "cond_v2", handler.branches),
        (cond_v2, "indexed_case", handler.branches),
        (while_v2, "while_loop", handler.loop),
        (custom_gradient, "_graph_mode_decorator", functools.partial(_if_recomputed, handler.recomputed)),
        (custom_gradient, "_eager_mode_decorator", functools.partial(_if_recomputed, handler.recomputed)),
    ]
    with _one_at_a_time, contextlib.ExitStack() as stack:
        for owner, name, handle in seams:
            stack.enter_context(replaced(owner, name, _stand_in(getattr(owner, name), handle, applies)))
        yield


def _stand_in(original: Callable[..., Any], handle: Callable[..., Any], applies: Callable[[], bool]) -> Any:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return handle(original, *args, **kwargs) if applies() else original(*args, **kwargs)

    return stand_in


def _if_recomputed(
    recomputed: Callable[..., Any],
    original: Callable[..., Any],
    function: Callable[..., Any],
    args: tuple,
    kwargs: dict,
) -> Any:
    """Tells what `tf.recompute_grad` made from what else has a gradient of its own."""
    if function.__qualname__ != "recompute_grad.<locals>.inner":
        return original(function, args, kwargs)
    return recomputed(inspect.getclosurevars(function).nonlocals["f"], args, kwargs)


def is_compiled(function: Any) -> bool:
    """Return whether XLA compiles what `tf.function` made."""
    return bool(function._jit_compile)


def fresh(function: Any) -> Any:
    """The same `tf.function`, which has no trace yet."""
    return function._clone(None)


def as_written(function: Any) -> Callable[..., Any]:
    """The Python function of a `tf.function`, with its `if` and `while` of tensors turned into ops if it does that."""
    if tf.executing_eagerly() or not function._autograph:
        return function.python_function
    converted = autograph_util.py_func_from_autograph(function.python_function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _unspecified:  # as TensorFlow traces it, whatever is around it
            return converted(*args, **kwargs)

    return call
