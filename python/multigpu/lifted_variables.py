"""Variables made while a step is traced (metrics, optimizer slots) are made outside of it instead.

TensorFlow traces a function twice when variables appear in it. With one replica per device that is minutes.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def lifted_variables(device: str) -> Iterator[None]:
    """Makes variables eagerly, on `device`, while it lasts."""

    def make(next_creator: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        if not callable(arguments["initial_value"]):
            return next_creator(**arguments)  # a value that was computed in the function cannot leave it
        arguments["experimental_enable_variable_lifting"] = False  # TensorFlow's own way, which traces twice
        with tf.init_scope(), tf.device(device):
            return next_creator(**arguments)

    with tf.variable_creator_scope(make):
        yield
