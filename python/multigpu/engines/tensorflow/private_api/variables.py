"""The TensorFlow variable behind a Keras variable: Keras has no public way to it, or to give it other memory."""

import keras
import tensorflow as tf


def backing_variable(variable: keras.Variable) -> tf.Variable:
    """The TensorFlow variable in which a Keras variable is stored. Its `value` may be another: cast, or in a scope."""
    return variable._value


def give_memory(variable: tf.Variable, handle: tf.Tensor) -> None:
    """Gives a variable other memory. It stays the object that optimizers, functions and users know."""
    handle.took_over_from = variable._handle  # graphs know that by its id, which no other may have meanwhile
    variable._handle = handle


def is_seed(variable: keras.Variable) -> bool:
    """Return whether this is the state of a `keras.random.SeedGenerator`, which names all of them so."""
    return variable.name == "seed_generator_state"
