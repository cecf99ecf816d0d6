"""Random layers draw other noise in each replica, the same on every run from the same seed."""

import keras
import numpy as np
import pytest

import multigpu
from multigpu.replicas.scope import is_seed

ONES = np.ones((8, 1000), "float32")


class AddsNoise(keras.layers.Layer):
    """Draws from Keras' global generator, which belongs to no model."""

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x))


def dropout(seed=None):
    return keras.Sequential([keras.Input((1000,)), keras.layers.Dropout(0.5, seed=seed)])


def noise():
    return keras.Sequential([keras.Input((1000,)), AddsNoise()])


def drawn(build, gpus=4, calls=2):
    """What the model gives for equal rows, call by call, from one seed on."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    model = multigpu.multi_gpu_model(build(), gpus=gpus)
    return [np.asarray(model(ONES, training=True)) for _ in range(calls)]


@pytest.mark.parametrize("build", [dropout, lambda: dropout(seed=3), noise])
def test_every_replica_and_every_call_draws_other_noise(build):
    first, second = drawn(build)
    rows = np.concatenate([first, second])
    assert len(np.unique(rows, axis=0)) == len(rows)
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 0.15  # of 1000 independent numbers: below 4.7 standard deviations


@pytest.mark.parametrize("build", [dropout, lambda: dropout(seed=3), noise])
def test_the_same_seed_draws_the_same_noise_again(build):
    np.testing.assert_array_equal(drawn(build), drawn(build))


def spread_over_rows(_, x):
    """Mean over columns of the variance over the rows of a batch: 0 if all replicas drew alike."""
    return keras.ops.mean(keras.ops.var(x, axis=0))


def test_replicas_differ_also_in_fit_and_where_steps_run_in_one_loop():
    template = keras.Sequential([*dropout().layers, keras.layers.PReLU()])  # a weight that changes nothing here
    template.build((None, 1000))
    parallel = multigpu.multi_gpu_model(template, gpus=4)
    parallel.compile(optimizer="sgd", loss=spread_over_rows, steps_per_execution=2)
    loss = parallel.fit(ONES, ONES, batch_size=4, verbose=0).history["loss"][0]
    assert loss == pytest.approx(0.75, abs=0.1)  # four independent rows of 0 or 2: variance 1, times (4 - 1) / 4


def test_the_templates_generator_advances_once_per_call_as_on_one_device():
    one, template = dropout(seed=3), dropout(seed=3)
    parallel = multigpu.multi_gpu_model(template, gpus=4)
    for _ in range(3):
        one(ONES, training=True)
        parallel(ONES, training=True)
    states = [model.layers[0].seed_generator.state.numpy() for model in (one, template)]
    np.testing.assert_array_equal(states[1], states[0])


@pytest.mark.quick
def test_without_training_nothing_is_dropped():
    parallel = multigpu.multi_gpu_model(dropout(), gpus=4)
    np.testing.assert_array_equal(parallel.predict(ONES, verbose=0), ONES)


def test_seeds_are_recognised_by_the_name_that_keras_gives_them():
    assert is_seed(keras.random.SeedGenerator(1).state)
    assert not any(map(is_seed, keras.layers.BatchNormalization().weights))
