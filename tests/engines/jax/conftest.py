"""Eight CPU devices for every test of the engine on JAX, in an environment of its own: `make test` runs these apart."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import pytest

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(autouse=True)
def fresh_keras():
    """Each test starts with the same seeds, no names taken, and as much memory as the first."""
    keras.utils.clear_session(free_memory=False)

    keras.utils.set_random_seed(0)
