"""Limit the threads with which a model from a file is built for the first time."""

import keras

OUT_OF_MEMORY = (MemoryError,)


def start_with_one_thread() -> None:
    """Start JAX's threads before memory is limited. Their number cannot be chosen."""
    keras.ops.zeros(())
