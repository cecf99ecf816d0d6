"""Eight logical CPU devices for every test, set up before TensorFlow starts."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest
import tensorflow as tf

import multigpu

multigpu.simulate_gpus(8)


@pytest.fixture(autouse=True)
def fresh_keras():
    """Each test starts with the same seeds and no names taken."""
    assert len(tf.config.list_logical_devices("CPU")) == 8
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
