"""Keras' default generator of noise, for `keras.random` without a seed. Each thread makes its own when it first draws.

It begins with a number of Python's `random`. Keras has no public access to it.
"""

import contextlib
import random
from collections.abc import Iterator

import keras
from keras.src.random import seed_generator
from keras.src.saving.object_registration import global_state

NAME = seed_generator.GLOBAL_SEED_GENERATOR


def default_generator() -> keras.random.SeedGenerator | None:
    """Return the default generator of this thread. None if it is not made yet."""
    return global_state.get_global_attribute(NAME)


def made_default_generator() -> keras.random.SeedGenerator:
    """Return the default generator of this thread, made now if it is not yet. Python's `random` stays as it is."""
    before = random.getstate()
    try:
        return seed_generator.global_seed_generator()
    finally:
        random.setstate(before)


def is_default(variable: keras.Variable) -> bool:
    """Return whether a variable is the state of this thread's default generator."""
    generator = default_generator()
    return generator is not None and generator.state is variable


@contextlib.contextmanager
def as_default_generator(generator: keras.random.SeedGenerator) -> Iterator[None]:
    """Make a generator the default one of this thread, inside a `with` block."""
    before = default_generator()
    global_state.set_global_attribute(NAME, generator)
    try:
        yield
    finally:
        global_state.set_global_attribute(NAME, before)
