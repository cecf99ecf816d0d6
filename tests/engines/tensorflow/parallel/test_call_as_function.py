"""The trace of a direct call serves later calls, whatever the code around the first one did with tapes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

X = tf.constant(random_rows(7, 4))


def template():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(2)])


def gradients(model, call):
    with tf.GradientTape() as tape:
        loss = ops.sum(call(X) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def in_init_scope(parallel):
    with tf.init_scope():
        parallel(X)


def recomputed(model):
    return tf.recompute_grad(lambda x: model(x))


FIRST = {
    "none": lambda parallel: None,
    "in init_scope": in_init_scope,
    "recomputed": lambda parallel: recomputed(parallel)(X),
    "recomputed on a tape": lambda parallel: gradients(parallel, recomputed(parallel)),
}


@pytest.mark.parametrize("first", FIRST)
def test_after_a_call_while_tapes_were_stopped_gradients_are_those_of_one_device(first):
    plain, parallel = template(), multi_gpu_model(template(), gpus=3)
    FIRST[first](parallel)
    for call in (parallel, recomputed(parallel), recomputed(parallel), parallel):
        for actual, expected in zip(gradients(parallel, call), gradients(plain, plain), strict=True):
            np.testing.assert_allclose(actual, expected, **ONE_CALL)
