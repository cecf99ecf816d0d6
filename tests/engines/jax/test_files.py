"""What a parallel model writes is its template's plain file, which any Keras reads; what it reads goes on training."""

import keras
import numpy as np
import pytest
from equality import assert_same_numbers, random_rows
from keras import layers

import multigpu

X, Y = random_rows(10, 5), random_rows(10, 3)


def build():
    return keras.Sequential([keras.Input((5,)), layers.Dense(64, "tanh"), layers.Dense(64), layers.Dense(3)])


def trained():
    parallel = multigpu.multi_gpu_model(build(), 8)
    parallel.compile("adam", "mse")
    parallel.fit(X, Y, verbose=0)
    return parallel


def values(model):
    return {str(n): v.numpy() for n, v in enumerate([*model.variables, *model.optimizer.variables])}


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_a_saved_model_is_a_plain_one_that_trains_on(ending, tmp_path):
    parallel = trained()
    parallel.save(tmp_path / f"model{ending}")
    load = multigpu.load_model_hdf5 if ending == ".h5" else keras.saving.load_model
    loaded = load(tmp_path / f"model{ending}")
    assert type(loaded) is keras.Sequential
    assert_same_numbers(values(loaded), values(parallel.template), rtol=0, atol=0)
    loaded.fit(X, Y, verbose=0, shuffle=False)
    parallel.fit(X, Y, verbose=0, shuffle=False)
    assert_same_numbers(values(loaded), values(parallel.template), rtol=1e-4, atol=1e-5)


def test_weights_are_written_and_read(tmp_path):
    parallel, other = trained(), multigpu.multi_gpu_model(build(), 3)
    parallel.save_weights(tmp_path / "model.weights.h5")
    multigpu.save_model_weights_hdf5(parallel, tmp_path / "weights.h5")
    for file, load in {"model.weights.h5": other.load_weights, "weights.h5": other.load_weights}.items():
        other.set_weights([np.zeros_like(each) for each in other.get_weights()])
        load(tmp_path / file)
        for one, two in zip(other.get_weights(), parallel.get_weights(), strict=True):
            np.testing.assert_array_equal(one, two)


class KilledError(Exception):
    pass


class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KilledError


def test_a_training_that_was_killed_and_resumed_is_one_that_was_not(tmp_path):
    def train(callbacks):
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(1)
        parallel = multigpu.multi_gpu_model(build(), 8)
        parallel.compile("adam", "mse")
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        parallel.fit(X, Y, epochs=4, batch_size=4, shuffle=False, verbose=0, callbacks=[backup, *callbacks])
        return values(parallel.template)

    with pytest.raises(KilledError):
        train([Kill()])
    resumed = train([])
    assert_same_numbers(resumed, train([]), rtol=1e-5, atol=1e-6)


def test_checkpoints_are_plain_files(tmp_path):
    parallel = trained()
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss")
    parallel.fit(X, Y, verbose=0, callbacks=[checkpoint])
    assert type(keras.saving.load_model(tmp_path / "best.keras")) is keras.Sequential
