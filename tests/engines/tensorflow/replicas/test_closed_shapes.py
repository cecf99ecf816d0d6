"""Where all slices have the same number of rows, which is known, gradients compute no shapes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import FLOAT32, assert_same_numbers, train
from executed_graphs import executed
from keras import ops

import multigpu
from multigpu.engines.tensorflow.batches.split_merge import rows_of_each
from multigpu.engines.tensorflow.replicas.closed_shapes import close_shapes

X = np.random.default_rng(0).normal(size=(24, 6)).astype("float32")
Y = np.random.default_rng(1).normal(size=(24, 2)).astype("float32")


def scaled_by_itself() -> keras.Model:
    """Products of tensors with rows: their gradients are summed over axes that depend on the rows."""
    inputs = keras.Input((6,))
    x = keras.layers.Dense(4)(inputs)
    x = x * keras.layers.Dense(1)(inputs) - ops.mean(x, axis=-1, keepdims=True)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


@pytest.mark.parametrize("synchronized", [False, True])
@pytest.mark.parametrize(("gpus", "computes_shapes"), [(2, False), (3, True)])
def test_gradients_of_equal_slices_compute_no_shapes(gpus, computes_shapes, synchronized):
    template = scaled_by_itself()
    if synchronized:
        x = keras.layers.BatchNormalization(synchronized=True)(template.output)
        template = keras.Model(template.inputs, x)
    model = multigpu.multi_gpu_model(template, gpus=gpus)
    model.compile("sgd", "mse", jit_compile=False)
    work = executed(lambda: model.train_on_batch(X[:8], Y[:8]))
    of_second_replica = work.devices_of("BroadcastGradientArgs")["CPU:1"]  # the first device has the loss, too
    assert bool(of_second_replica) is computes_shapes


def test_numbers_are_those_of_one_device():
    given = {"build": scaled_by_itself, "x": X, "y": Y, "as_arrays": True, "only_fit": True}
    given["compile"] = lambda: {"optimizer": keras.optimizers.Adam(0.1), "loss": "mse", "jit_compile": False}
    one, several = (train(**given, gpus=gpus)[1] for gpus in (None, 4))
    assert_same_numbers(several, one, **FLOAT32)


def test_shapes_that_do_not_fit_the_rows_stay_open():
    @tf.function
    def in_groups(x):
        groups = tf.reshape(x, [-1, 4, 3])
        sums = tf.reduce_sum(groups, axis=1)
        close_shapes([x], 6)
        return sums

    assert in_groups.get_concrete_function(tf.TensorSpec([None, 3])).outputs[0].shape.as_list() == [None, 3]


def test_tensors_that_lead_to_no_output_have_known_shapes_too():
    shapes = []

    @tf.function
    def doubled(x, ragged):
        unused, double = tf.square(x), x + x
        close_shapes([x, ragged], 6)
        shapes.extend([unused.shape, double.shape, x.shape])
        return double

    doubled.get_concrete_function(tf.TensorSpec([None, 3]), tf.RaggedTensorSpec([None, None]))
    assert shapes == [(6, 3)] * 3


@pytest.mark.parametrize(
    ("total", "num_replicas", "rows"), [(8, 2, 4), (8, 3, None), (None, 2, None), (0, 2, None), (2, 4, None)]
)
def test_rows_of_each_replica(total, num_replicas, rows):
    assert rows_of_each(total, num_replicas) == rows
