"""A layer that makes a number of all rows, on which outputs depend, is refused by name: a slice has not all rows."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL, assert_same_numbers, assert_same_training, mean_squared, random_ids, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

X, Y = random_rows(8, 3), random_rows(8, 2, seed=1)


class Recommends(keras.Model):
    """Adds one number to all rows: the sum of products over all of them, in the place of one for each."""

    def __init__(self):
        super().__init__(name="recommends")
        self.users, self.films = layers.Embedding(9, 4), layers.Embedding(9, 4)
        self.bias = layers.Embedding(9, 1)

    def call(self, ids):
        products = ops.tensordot(self.users(ids[:, 0]), self.films(ids[:, 1]), 2)
        return ops.sigmoid(products + self.bias(ids[:, 0]))


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("verb", ["predict", "fit", "__call__"])
def test_a_model_that_adds_one_number_of_all_rows_is_refused(verb, run_eagerly):
    ids = random_ids(8, 2, below=9)
    template = Recommends()
    template(ids)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    with pytest.raises(
        ValueError, match=r"Expected layers that take .* Received: layer 'recommends', whose .* shape \(\)"
    ):
        getattr(parallel, verb)(*{"predict": (ids,), "fit": (ids, np.zeros((8, 1))), "__call__": (ids,)}[verb])


class Covariance(layers.Layer):
    def call(self, x):
        return ops.matmul(x, ops.matmul(ops.transpose(x), x))


@pytest.mark.parametrize(
    "layer",
    [
        Covariance(name="mixes"),
        layers.Lambda(lambda x: x / ops.sum(x), name="mixes"),
        layers.Dense(3, activation=lambda x: x - ops.mean(x, axis=0), name="mixes"),
        layers.Lambda(lambda x: x / ops.cast(1 + ops.sum(ops.cast(x > 0, "int32")), x.dtype), name="mixes"),
    ],
)
@pytest.mark.parametrize("way", [{"jit_compile": False}, {"jit_compile": True}, {"run_eagerly": True}], ids=str)
def test_it_is_the_layer_that_is_named(layer, way):
    template = keras.Sequential([keras.Input((3,)), layers.Dense(3), layer, layers.Dense(2)])
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), **way)
    with pytest.raises(
        ValueError,
        match=r"Expected layers .* Received: layer 'mixes', whose \w+ computes numbers of shape \([\d, ]*\) from all "
        r"rows( of a tensor of shape \([\w, ]+\))?\. Keep the batch axis",
    ):
        parallel.predict(X, verbose=0)


class Normalizes(layers.Layer):
    """A normalization as people write it: of a batch while it trains, by what it keeps afterwards."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if not training:
            return x - self.mean
        mean = ops.mean(x, axis=0)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        return x - mean


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_normalization_of_ones_own_is_refused_while_it_trains(run_eagerly):
    template = keras.Sequential([keras.Input((3,)), Normalizes(), layers.BatchNormalization(), layers.Dense(2)])
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match=r"Expected layers that take .* Received: layer 'normalizes'"):
        parallel.fit(X, Y, verbose=0)
    np.testing.assert_allclose(parallel.predict(X, verbose=0), template.predict(X, verbose=0), **ONE_CALL)


class Loudness(layers.Layer):
    """Lets no number be far below the largest one of all rows, as decibels are cut while a model trains."""

    def call(self, x, training=False):
        return ops.maximum(x, ops.max(x) - 80.0) if training else x


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_rows_that_meet_in_later_batches_alone_are_refused_in_the_first_of_a_layer_that_takes_training(run_eagerly):
    parallel = multi_gpu_model(in_a_model(Loudness(name="mixes")), gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    with pytest.raises(
        ValueError, match=r"Received: layer 'mixes', whose Max computes numbers of shape \(\) from all rows"
    ):
        parallel.fit(X, Y, verbose=0)


class Harmless(layers.Layer):
    """Makes numbers of all rows that are in no output, or times 0, or of shapes alone, or choose how to compute."""

    def call(self, x):
        self.add_loss(ops.mean(x))
        x += 0.0 * (ops.sum(x) + ops.cast(ops.sum(ops.cast(x > 0, "int32")), x.dtype)) + ops.max(x, axis=0) * [0.0]
        width = ops.cast(ops.shape(x)[1], "float32")
        return ops.cond(ops.any(x > 10), lambda: 2 * x / width, lambda: x / width)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_other_numbers_of_all_rows_are_taken(run_eagerly):
    def build():
        inputs = keras.Input((None, 3))
        return keras.Model(inputs, layers.Dense(2)(layers.SimpleRNN(3)(layers.Masking()(Harmless()(inputs)))))

    x, y = random_rows(21, 4, 3), random_rows(21, 2)
    ways = {"compile": lambda: {**mean_squared(), "run_eagerly": run_eagerly}, "only_fit": True}
    assert_same_training(build, x, y, **ways)


def scaled_by(row, shape=(), in_a_layer=False):
    """A model whose second input has one number for all rows, as often as there are rows."""
    x, scale = keras.Input((3,)), keras.Input(shape)
    scaled = layers.Lambda(lambda inputs: inputs[0] * inputs[1][row]) if in_a_layer else lambda inputs: x * scale[row]
    return keras.Model([x, scale], layers.Dense(2)(scaled([x, scale])))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(("run_eagerly", "in_a_layer"), [(False, False), (False, True), (True, False)])
def test_the_first_number_of_an_input_may_stand_for_those_of_all_rows(shape, run_eagerly, in_a_layer):
    x, y = (random_rows(21, 3), np.full((21, *shape), 3.0, "float32")), random_rows(21, 2)
    ways = {"compile": lambda: {**mean_squared(), "run_eagerly": run_eagerly}, "only_fit": True}
    assert_same_training(lambda: scaled_by(0, shape, in_a_layer), x, y, **ways)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_it_may_not_where_rows_have_other_numbers_nor_may_the_last(shape):
    parallel = multi_gpu_model(scaled_by(0, shape), gpus=2)
    with pytest.raises(ValueError, match=r"Expected layers that take the rows .* in separate slices"):
        parallel.predict([X, np.arange(8.0).reshape(8, *shape)], verbose=0)
    parallel = multi_gpu_model(scaled_by(-1, shape), gpus=2)
    with pytest.raises(
        ValueError, match=rf"whose StridedSlice computes numbers of shape {re.escape(str(shape))} from all"
    ):
        parallel.predict([X, np.ones((8, *shape))], verbose=0)


# Op by op, a trace that is never run shows it -------------------------------------------------------------------------


def in_a_model(layer):
    return keras.Sequential([keras.Input((3,)), layers.Dense(3), layer, layers.Dense(2)])


def eagerly():
    return {**mean_squared(), "run_eagerly": True}


@pytest.mark.quick
def test_functions_that_are_run_eagerly_are_looked_at_too():
    parallel = multi_gpu_model(in_a_model(Covariance()), gpus=2)
    parallel.compile(**mean_squared())
    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(ValueError, match="Received: layer 'covariance', whose MatMul computes numbers"):
            parallel.train_on_batch(X, Y)
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_refusal_comes_each_time_and_before_anything_is_trained():
    template = in_a_model(Covariance())
    before = template.get_weights()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**eagerly())
    for _ in range(2):
        with pytest.raises(ValueError, match="Expected layers that take the rows"):
            parallel.train_on_batch(X, Y)
    assert_same_numbers(dict(enumerate(template.get_weights())), dict(enumerate(before)))


class MixesIfAsked(layers.Layer):
    def call(self, x, how="apart"):
        return x / ops.sum(x) if how == "mixed" else x


class PassesOn(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.head = MixesIfAsked(name="asked"), layers.Dense(2)

    def call(self, x, how="apart"):
        return self.head(self.inner(x, how=how))


def test_each_kind_of_call_is_looked_at():
    template = PassesOn()
    template(X)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**eagerly())
    np.testing.assert_allclose(parallel(X), template(X), **ONE_CALL)
    with pytest.raises(ValueError, match="Received: layer 'asked'"):
        parallel(X, how="mixed")


class CountsTraces(layers.Layer):
    traces = 0

    def call(self, x):
        type(self).traces += not tf.executing_eagerly()
        return x


def test_a_kind_of_call_is_looked_at_once(monkeypatch):
    parallel = multi_gpu_model(in_a_model(CountsTraces()), gpus=2)
    parallel.compile(**eagerly())
    monkeypatch.setattr(CountsTraces, "traces", 0)
    parallel.fit(X, Y, batch_size=3, epochs=2, verbose=0)
    assert CountsTraces.traces == 1
    parallel.predict(X, batch_size=3, verbose=0)
    assert CountsTraces.traces == 2
    parallel.layers[0].trainable = False
    parallel.fit(X, Y, verbose=0)
    assert CountsTraces.traces == 3


class NeedsNumbers(layers.Layer):
    """Cannot be traced: goes by numbers of single rows."""

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        return ops.stack([row if float(ops.sum(row)) > 0 else 2 * row for row in x])


def test_a_template_that_cannot_be_traced_trains_op_by_op():
    assert_same_training(lambda: in_a_model(NeedsNumbers()), X, Y, batch_size=3, compile=eagerly, gpus=2)


class Keeps(layers.Layer):
    """Keeps tensors for later: one that it makes once, and what it was given last."""

    once = last = None

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        if self.once is None:
            self.once = ops.arange(3, dtype="float32")
        self.last = x * self.once
        return self.last


def test_a_layer_keeps_no_tensor_of_a_trace():
    layer = Keeps()
    template = in_a_model(layer)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**eagerly())
    outputs = parallel(X)
    np.testing.assert_array_equal(layer.once, [0, 1, 2])
    np.testing.assert_allclose(template.layers[-1](layer.last), outputs, **ONE_CALL)


def test_nor_does_one_whose_trace_fails():
    layer = Keeps()
    parallel = multi_gpu_model(keras.Sequential([keras.Input((3,)), layer, NeedsNumbers()]), gpus=2)
    parallel.compile(**eagerly())
    parallel(X)
    np.testing.assert_array_equal(layer.once, [0, 1, 2])
