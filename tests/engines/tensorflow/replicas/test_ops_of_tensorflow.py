"""Layers that Keras has on TensorFlow alone: of texts, of Python inside of a graph, with a metric in their call."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_training, mean_squared, random_ids, random_rows

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers


def test_int_float_and_string_inputs():
    words = np.array(["red", "green", "blue", "unknown"])[random_ids(ROWS, 1, below=4)]
    x = {"word": tf.constant(words), "number": random_ids(ROWS, 1, below=5), "size": 10 * random_rows(ROWS, 2) + 7}

    def build():
        word = keras.Input((1,), dtype="string", name="word")
        number = keras.Input((1,), dtype="int32", name="number")
        size = keras.Input((2,), name="size")
        normalization = layers.Normalization()
        normalization.adapt(x["size"])
        features = [
            layers.Flatten()(layers.Embedding(4, 3)(layers.StringLookup(vocabulary=["red", "green", "blue"])(word))),
            layers.Flatten()(layers.Embedding(5, 2)(number)),
            normalization(size),
        ]
        output = layers.Dense(2)(layers.Concatenate()(features))
        return keras.Model({"word": word, "number": number, "size": size}, output)

    assert_same_training(build, x, random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


class CallsPython(layers.Layer):
    """Squares its input in Python, which has a gradient."""

    def call(self, x):
        return tf.ensure_shape(tf.py_function(tf.square, [x], "float32"), x.shape)


def test_layers_that_call_python_have_gradients_of_their_own_slices():
    """Of the rows themselves, which nobody asks a gradient of, and of what weights made of them."""

    def build():
        return keras.Sequential([keras.Input((3,)), CallsPython(), layers.Dense(4), CallsPython(), layers.Dense(2)])

    def small_steps():
        return {"optimizer": keras.optimizers.SGD(0.01), "loss": "mse"}

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=small_steps)


class Measuring(keras.Model):
    """A model that keeps a metric of its own."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.mean_size = keras.metrics.Mean(name="mean_size")

    def call(self, x, training=False):
        outputs = {"output": self.dense(x)}
        self.mean_size.update_state(keras.ops.abs(outputs["output"]))
        return outputs


def test_a_model_with_a_metric_of_its_own():
    def build():
        model = Measuring()
        model(np.zeros((1, 3), "float32"))
        return model

    y = {"output": random_rows(ROWS, 1)}
    assert_same_training(build, random_rows(ROWS, 3), y, compile=mean_squared, gpus=2, only_fit=True)


class Watching(layers.Layer):
    """Passes its input on and keeps the mean of what it saw."""

    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x):
        self.seen.update_state(x)
        return x


def test_a_metric_in_a_layer_sees_the_whole_batch():
    def build():
        return keras.Sequential([keras.Input((3,)), Watching(), layers.Dense(2)])

    x = random_rows(ROWS, 3)
    template = assert_same_training(build, x, random_rows(ROWS, 2), compile=mean_squared)
    total, count = (float(variable.numpy()) for variable in template.layers[0].seen.variables)
    assert (total, count) == pytest.approx((2 * x.mean(axis=1).sum(), 2 * ROWS), rel=1e-4)  # evaluate, then predict
