"""Tensors that a call keeps in attributes, for code that runs after it, are those of the batch, as on one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from keras import layers, ops

from multigpu import multi_gpu_model

X = np.random.default_rng(0).normal(size=(7, 5)).astype("float32")
NUMBERS = {"rtol": 1e-5, "atol": 1e-6}


class Encoder(layers.Layer):
    """Keeps a list of tensors with rows, and a number of all rows."""

    def __init__(self):
        super().__init__()
        self.dense, self.parts = layers.Dense(6), []

    def call(self, x):
        h = self.dense(x)
        self.parts = [h[:, :3], h[:, 3:]]
        self.spread = ops.std(h)
        return h[:, :3]


class Autoencoder(keras.Model):
    """Keeps a dict with a tensor that has rows, and a mean over rows; its loss reads all."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), layers.Dense(5)

    def call(self, x, training=None):
        code = self.encoder(x)
        self.kept, self.size = {"code": code, "version": 3}, ops.mean(ops.square(code))
        return self.decoder(code)

    def of_kept(self):
        mean, log = self.encoder.parts
        divergence = ops.mean(1 + log - ops.square(mean) - ops.exp(log)) / self.kept["version"]
        return ops.sum(ops.abs(self.kept["code"])) * 0.01 + self.size + self.encoder.spread - divergence


class OfALoss(Autoencoder):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, sample_weight) + self.of_kept()


class OfAStep(Autoencoder):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x, training=True) - y)) + self.of_kept()
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def trained(kind, gpus, **compiled):
    keras.utils.set_random_seed(0)
    template = kind()
    template(X)
    model = multi_gpu_model(template, gpus) if gpus else template
    model.compile(keras.optimizers.Adam(0.05), "mse", **compiled)
    losses = model.fit(X, X, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [losses, *template.get_weights()]


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [(OfALoss, {}), (OfAStep, {"run_eagerly": True}), soak(OfAStep, {}), soak(OfALoss, {"run_eagerly": True})],
)
def test_tensors_kept_in_attributes_are_those_of_the_batch(kind, compiled):
    for given, expected in zip(trained(kind, 3, **compiled), trained(kind, None, **compiled), strict=True):
        np.testing.assert_allclose(given, expected, **NUMBERS)


def test_after_a_call_attributes_hold_what_one_device_leaves_and_gradients_flow_to_it():
    def left(gpus):
        keras.utils.set_random_seed(0)
        template = Autoencoder()
        template(X[:2])
        model = multi_gpu_model(template, gpus) if gpus else template
        with tf.GradientTape() as tape:
            y = model(tf.constant(X))
            loss = template.of_kept()
        gradients = tape.gradient(loss, template.trainable_variables)
        none = [gradient is None for gradient in gradients]
        assert none == [False, False, True, True]  # the decoder's
        return [y, template.size, *template.encoder.parts, template.encoder.spread, *gradients[:2]]

    for given, expected in zip(left(3), left(None), strict=True):
        np.testing.assert_allclose(given, expected, **NUMBERS)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_after_the_first_call_lists_hold_what_one_device_leaves_in_them(run_eagerly):
    class Hooked(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seen, self.by_name = ["text"], {"squares": []}

        def call(self, x):
            self.seen.append(2 * x)
            self.by_name["squares"].append(x * x)
            return 3 * x

    def left(gpus):
        layer = Hooked()
        template = keras.Sequential([keras.Input((5,)), layer])
        model = multi_gpu_model(template, gpus) if gpus else template
        model.compile(run_eagerly=run_eagerly)
        layer.seen[1:], layer.by_name["squares"][:] = [], []  # what building a model has left
        model(X)
        return [*layer.seen, *layer.by_name["squares"]]

    (text, *given), (_, *expected) = left(3), left(None)
    assert text == "text"
    for each, of_one in zip(given, expected, strict=True):
        np.testing.assert_array_equal(each, of_one)


def test_what_is_kept_of_rows_that_see_each_other_is_refused_by_name():
    class Ranks(layers.Layer):
        def call(self, x):
            self.rank = ops.cumsum(ops.ones_like(x), axis=0)
            return x * 2

    inputs = keras.Input((5,))
    parallel = multi_gpu_model(keras.Model(inputs, Ranks(name="ranks")(inputs)), gpus=2)
    with pytest.raises(Exception, match="'rank' of layer 'ranks' differs"):
        parallel(X)


def test_what_python_counts_in_a_call_is_left_alone():
    class Counts(layers.Layer):
        calls, last = 0, None

        def call(self, x):
            self.calls, self.last = self.calls + 1, "text"
            return x * 2

    inputs = keras.Input((5,))
    layer = Counts()
    parallel = multi_gpu_model(keras.Model(inputs, layer(inputs)), gpus=2)
    before = layer.calls
    parallel(X)
    assert layer.calls > before
    assert layer.last == "text"
