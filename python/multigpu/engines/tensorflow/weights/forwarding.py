"""Redirect users of a variable that moves to its new memory. If this is impossible, they raise an error.

A traced function has captured the handles of the variables that it reads. These are Python objects in Python lists.
They are exchanged there, and the function then reads, assigns and differentiates the variables in their new places. A
`tf.data` pipeline keeps its handles in C++: it finds an unusable value, in a shape that fits no layer.
"""

import gc
import math
from collections.abc import Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.datasets import captured_by
from multigpu.private_api.warn_caller import warn

ODD = 1009  # elements: a prime, which is not the size of any layer


def spoil(handle: tf.Tensor, dtype: tf.DType) -> None:
    """Free the old memory of a variable, and leave a value that cannot be mistaken for the variable's."""
    nothing = tf.cast([math.nan] * ODD, dtype) if dtype.is_floating or dtype.is_complex else tf.zeros([ODD], dtype)
    with tf.device(handle.device):
        tf.raw_ops.AssignVariableOp(resource=handle, value=nothing)


def forward(moved: Sequence[tuple[tf.Variable, tf.Tensor]]) -> None:
    """Give all users of a variable's old handle the new one.

    Args:
        moved: variables, with the handles that they had before.
    """
    if not moved:
        return
    _warn_of_pipelines({id(old): variable.name for variable, old in moved})
    new = {id(old): variable.handle for variable, old in moved}
    for holder in _holders_of([old for _, old in moved]):
        places = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for place in [place for place, held in places if id(held) in new]:
            holder[place] = new[id(holder[place])]


def _holders_of(handles: Sequence[tf.Tensor]) -> list:
    """Return all objects that refer to handles. No collection may run meanwhile.

    A collection moves objects from list to list. The search would then miss the end of a list, and crash the process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return gc.get_referrers(*handles)
    finally:
        if was_on:
            gc.enable()


def _warn_of_pipelines(names: dict[int, str]) -> None:
    pipelines = [thing for thing in gc.get_objects() if issubclass(type(thing), tf.data.Dataset)]
    reading = {names[id(x)] for pipeline in pipelines for x in captured_by(pipeline) if id(x) in names}
    if reading:
        warn(
            "Expected `tf.data` pipelines that do not read weights, because weights move to other devices. Received: "
            f"one that reads {min(reading)!r}. It will raise an error when you use it again: make it again now."
        )
