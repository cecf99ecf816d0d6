"""Training goes on from a file as if it had not stopped, on any number of devices, with the noise of one."""

import keras
import pytest
from cases import soak
from equality import assert_same, random_rows

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate

X, Y = random_rows(22, 5), random_rows(22, 2, seed=1)
SEED = 7
TWINS = [soak(None), soak(2), 3, soak(8)]  # None is the template alone


def build():
    keras.utils.clear_session()
    hidden = [keras.layers.Dense(8, activation="tanh") for _ in range(3)]
    dropout = keras.layers.Dropout(0.5, seed=SEED, name="dropout")
    template = keras.Sequential([keras.Input((5,)), *hidden, dropout, keras.layers.Dense(2)])
    template.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse")
    return template


def spread(template, gpus):
    return multi_gpu_model(template, gpus=gpus) if gpus else template


def fit(model, epochs=2):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history


def state(model):
    return [model.get_weights(), [variable.numpy() for variable in model.optimizer.variables]]


@pytest.fixture(scope="module")
def uninterrupted():
    """What one device has after two epochs, and what two more epochs give.

    Keras writes no state of noise into files: what is loaded draws from its seeds again, on one device as well.
    """
    keras.utils.set_random_seed(0)
    model = build()
    fit(model)
    model.get_layer("dropout").seed_generator.state.assign([SEED, 0])
    return state(model), fit(model), state(model)


def stopped(gpus):
    """A parallel model after two epochs."""
    keras.utils.set_random_seed(0)
    parallel = spread(build(), gpus)
    fit(parallel)
    return parallel


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files of a parallel model that stopped after two epochs."""
    folder = tmp_path_factory.mktemp("stopped")
    parallel = stopped(3)
    parallel.save(folder / "model.keras")
    parallel.save_weights(folder / "model.weights.h5")
    return folder


@pytest.mark.parametrize("gpus", TWINS)
def test_training_goes_on_from_a_whole_file(gpus, uninterrupted, files):
    loaded = keras.saving.load_model(files / "model.keras")
    assert type(loaded) is keras.Sequential
    assert_same(state(loaded), uninterrupted[0])
    model = spread(loaded, gpus)
    assert_same([fit(model), state(loaded)], list(uninterrupted[1:]))


@pytest.mark.parametrize("gpus", TWINS)
def test_training_goes_on_from_weights_and_optimizer_state(gpus, uninterrupted, files):
    model = spread(build(), gpus)
    model.optimizer.build(model.trainable_variables)  # so that it has where to load its state
    model.load_weights(files / "model.weights.h5")
    assert_same(state(model), uninterrupted[0])
    assert_same([fit(model), state(model)], list(uninterrupted[1:]))


def test_what_is_loaded_goes_to_the_owners(tmp_path):
    parallel = stopped(3)
    parallel.save_weights(tmp_path / "model.weights.h5")
    kept = [*parallel.template.variables, *parallel.optimizer.variables]
    before = [locate(variable) for variable in kept]
    saved = state(parallel)
    fit(parallel)
    parallel.load_weights(tmp_path / "model.weights.h5")
    assert_same(state(parallel), saved)
    assert [locate(variable) for variable in kept] == before
