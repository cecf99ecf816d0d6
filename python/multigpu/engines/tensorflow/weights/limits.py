"""Limit the threads and the memory with which a model from a file is built for the first time."""

import math
from typing import Any

import tensorflow as tf

OUT_OF_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)


def start_with_one_thread() -> None:
    """Start TensorFlow's threads before memory is limited: only one of each kind, since each takes memory."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.zeros(())


def variables_of_at_most(num_elements: int) -> Any:
    """Raise an error before variables are made that are larger in total."""
    left = num_elements

    def make(next_creator: Any, **arguments: Any) -> tf.Variable:
        nonlocal left
        value = arguments["initial_value"]
        if callable(value):
            with tf.Graph().as_default():  # for values that are only described
                value = tf.convert_to_tensor(value())
        left -= math.prod(value.shape)
        if left < 0:
            raise ValueError(f"it needs more than the {num_elements:,} numbers that the file has as weights.")
        return next_creator(**arguments)

    return tf.variable_creator_scope(make)
