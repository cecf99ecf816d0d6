"""All BatchNormalizations of a model by the global batch, with one call; and where they are not, a word."""

import re
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_training
from keras import layers

import multigpu
from multigpu.engines.tensorflow.parallel.batch_statistics import of_slices

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(22, 4, 3)).astype("float32"), RNG.normal(size=(22, 1)).astype("float32")


class Renormalization(layers.BatchNormalization):
    """One of somebody's own."""


def nested():
    """Five: in the model, in one inside of it, in a wrapper, of a class of somebody's own, and frozen."""
    x = keras.Input((4, 3))
    inner = keras.Sequential([keras.Input((4, 5)), layers.BatchNormalization(), layers.Dense(5, "tanh")], name="inner")
    hidden = inner(layers.BatchNormalization()(layers.Dense(5)(x)))
    hidden = Renormalization()(layers.TimeDistributed(layers.BatchNormalization())(hidden))
    hidden = layers.BatchNormalization(trainable=False)(layers.Flatten()(hidden))
    return keras.Model(x, layers.Dense(1)(hidden))


def test_every_layer_of_a_model_takes_the_statistics_of_the_global_batch_until_that_is_turned_back():
    model = nested()
    assert len(of_slices(model)) == 4
    assert multigpu.synchronize_batch_norm(model) is model
    assert of_slices(model) == []
    parallel = multigpu.multi_gpu_model(model, gpus=2)
    assert multigpu.synchronize_batch_norm(parallel, synchronized=False) is parallel
    assert len(of_slices(model)) == 4
    assert_same_training(
        lambda: multigpu.synchronize_batch_norm(nested()),
        X,
        Y,
        compile=lambda: {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse"},
        batch_size=8,
    )


def test_a_model_that_was_trained_before_goes_by_it_from_the_next_step_on():
    plain, template = nested(), nested()
    before = plain.get_weights()
    parallel = multigpu.multi_gpu_model(template, gpus=3)
    for model in (plain, parallel):
        model.compile(keras.optimizers.SGD(0.1), "mse")

    def losses(model, synchronized):
        model.set_weights(before)
        multigpu.synchronize_batch_norm(template, synchronized)
        return [float(model.train_on_batch(X, Y)) for _ in range(2)]

    by_slices = losses(parallel, False)
    of_one = losses(plain, False)
    np.testing.assert_allclose(losses(parallel, True), of_one, rtol=1e-5)
    np.testing.assert_allclose(losses(parallel, False), by_slices, rtol=1e-5)
    assert np.abs(np.subtract(by_slices, of_one)).max() > 1e-3


def words(train):
    """What a training says of layers by slices."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train()
    return [each for each in said if "statistics of the global batch" in str(each.message)]


def compiled(model, **arguments):
    parallel = multigpu.multi_gpu_model(model, gpus=3)
    parallel.compile("sgd", "mse", **arguments)
    return parallel


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_the_first_training_says_once_that_statistics_are_of_slices(run_eagerly):
    parallel = compiled(nested(), run_eagerly=run_eagerly)
    assert words(lambda: parallel.evaluate(X, Y, verbose=0)) == []
    (said,) = words(lambda: parallel.fit(X, Y, batch_size=11, epochs=2, verbose=0))
    assert re.fullmatch(
        r"Expected statistics of the global batch, as on one device\. Received: 4 BatchNormalization layers with "
        r"statistics of each slice, such as '\w+'\. Call `multigpu\.synchronize_batch_norm\(model\)` for the numbers "
        r"of one device; without it, steps are faster\.",
        str(said.message),
    )
    assert Path(said.filename) == Path(__file__)
    assert words(lambda: parallel.train_on_batch(X[:5], Y[:5])) == []


class NotTrained(keras.Model):
    """Runs its layer as it would after training."""

    def __init__(self):
        super().__init__()
        self.normalization, self.top = layers.BatchNormalization(), layers.Dense(1)
        self(X[:, 0])

    def call(self, x, training=None):
        return self.top(self.normalization(x, training=False))


def frozen():
    model = nested()
    for layer in of_slices(model):
        layer.trainable = False
    return model


def test_nothing_is_said_where_no_statistics_are_taken_of_slices():
    assert words(lambda: compiled(frozen()).train_on_batch(X, Y)) == []
    assert words(lambda: compiled(NotTrained()).train_on_batch(X[:, 0], Y)) == []


def test_a_loop_of_ones_own_says_it_too():
    parallel = multigpu.multi_gpu_model(nested(), gpus=2)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(parallel(X, training=True))
        tape.gradient(loss, parallel.trainable_variables)

    assert [len(words(step)) for _ in range(2)] == [1, 0]


def test_its_summary_says_how_many_layers_go_by_slices():
    def last_line(model):
        lines = []
        multigpu.multi_gpu_model(model, gpus=2).summary(print_fn=lambda line, **_: lines.append(line))
        return lines[-1]

    assert last_line(nested()) == (
        " BatchNormalization: 4 by the statistics of each slice; of the global batch after "
        "multigpu.synchronize_batch_norm(model)"
    )
    assert last_line(multigpu.synchronize_batch_norm(nested())).startswith(" Parallel: ")
    assert last_line(frozen()).startswith(" Parallel: ")


def test_models_of_keras_applications_are_synchronized_and_can_be_saved(tmp_path):
    model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=3, alpha=0.35)
    assert len(of_slices(model)) == 52
    assert of_slices(multigpu.synchronize_batch_norm(model)) == []
    model.save(tmp_path / "model.keras")
    assert of_slices(keras.saving.load_model(tmp_path / "model.keras")) == []
