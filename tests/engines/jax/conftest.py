"""Eight CPU devices for every test of the engine on JAX, in an environment of its own: `make test` runs these apart."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import pytest

import multigpu

multigpu.simulate_gpus(8)


@pytest.fixture(autouse=True)
def fresh_keras():
    """Each test starts with the same seeds and no names taken."""
    assert len(multigpu.available_gpus()) == 8
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
