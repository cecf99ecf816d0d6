"""The TensorFlow variable behind a Keras variable. Keras has no public way to ask for it, or to give it another one."""

import keras
import tensorflow as tf


def backing_variable(variable: keras.Variable) -> tf.Variable:
    """The TensorFlow variable in which a Keras variable is stored. Its `value` may be another: cast, or in a scope."""
    return variable._value


def replace_backing_variable(variable: keras.Variable, moved: tf.Variable) -> None:
    """Gives a Keras variable other memory. Optimizers still find its slots: they know it by TensorFlow's unique id."""
    moved._unique_id = variable._value._unique_id
    variable._value = moved


def is_seed(variable: keras.Variable) -> bool:
    """Whether this is the state of a `keras.random.SeedGenerator`, which names all of them so."""
    return variable.name == "seed_generator_state"
