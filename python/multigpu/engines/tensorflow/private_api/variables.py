"""The TensorFlow variable of a Keras variable. Keras has no public access to it, and no way to change its memory."""

import keras
import tensorflow as tf


def backing_variable(variable: keras.Variable) -> tf.Variable:
    """Return the TensorFlow variable that stores a Keras variable. Its `value` may be cast, or of a scope."""
    return variable._value


def give_memory(variable: tf.Variable, handle: tf.Tensor) -> None:
    """Give a variable other memory. It stays the object that optimizers, functions and users know."""
    handle.took_over_from = variable._handle  # graphs know it by its id, which no other object may get meanwhile
    variable._handle = handle


def is_seed(variable: keras.Variable) -> bool:
    """Return whether a variable is the state of a `keras.random.SeedGenerator`, by its name."""
    return variable.name == "seed_generator_state"
