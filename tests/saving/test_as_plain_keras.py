"""Files of parallel models are read and written as those of plain models, also where Keras' ways are odd."""

import errno
import os
import threading
import warnings

import h5py
import keras
import numpy as np
import pytest
from equality import dense_data, dense_net, random_rows
from keras import layers, ops

import multigpu
from multigpu import load_model_hdf5, load_model_weights_hdf5, multi_gpu_model, save_model_hdf5, save_model_weights_hdf5
from multigpu.saving.file_errors import damaged

pytestmark = pytest.mark.usefixtures("forked")

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def net(head=2, **compile):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4, name="body"), layers.Dense(head, name="head")])
    if compile:
        model.compile(**compile)
    return model


def test_weights_that_are_loaded_leave_a_new_optimizer_as_it_is(tmp_path):
    """Its learning rate stays, with Keras' warning that its state is left out."""
    trained = dense_net(optimizer=keras.optimizers.Adam(1e-2))
    trained.fit(*dense_data(), **FIT)
    trained.save_weights(tmp_path / "w.weights.h5")
    after = []
    for wrapped in (False, True):
        model = dense_net(optimizer=keras.optimizers.RMSprop(1e-5, momentum=0.9))
        model = multi_gpu_model(model, gpus=3) if wrapped else model
        with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
            model.load_weights(tmp_path / "w.weights.h5")
        model.fit(*dense_data(), **FIT)
        after.append(model.get_weights())
    for weight, expected in zip(*after, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-7)


def test_by_name_wins_over_the_look_of_an_old_parallel_model(tmp_path):
    """Two Lambda layers beside one layer with weights look like one."""
    shift = [layers.Lambda(lambda x: x + 1, name=name) for name in ("lambda", "lambda_1")]
    saved = keras.Sequential([keras.Input((3,)), *shift, layers.Dense(4, name="body")])
    saved.save(tmp_path / "m.h5")
    template = net()
    multi_gpu_model(template, gpus=2).load_weights(tmp_path / "m.h5", by_name=True)
    np.testing.assert_array_equal(template.layers[0].kernel, saved.layers[-1].kernel)
    other = keras.Sequential([keras.Input((3,)), layers.Dense(4, name="other")])
    before = other.get_weights()
    multi_gpu_model(other, gpus=2).load_weights(tmp_path / "m.h5", by_name=True)
    np.testing.assert_array_equal(other.get_weights()[0], before[0])


def test_unknown_arguments_are_refused(tmp_path):
    parallel = multi_gpu_model(net(), gpus=2)
    save_model_weights_hdf5(parallel, tmp_path / "w.h5")
    with pytest.raises(ValueError, match="Received: `byname`"):
        parallel.load_weights(tmp_path / "w.h5", byname=True)


def test_a_failure_between_two_weights_leaves_all_as_they_were(tmp_path, monkeypatch):
    parallel = multi_gpu_model(net(), gpus=2)
    save_model_weights_hdf5(parallel, tmp_path / "w.h5")
    before = [weight + 1 for weight in parallel.get_weights()]
    parallel.set_weights(before)
    assign, calls = keras.Variable.assign, iter(range(100))

    def interrupted(variable, value):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return assign(variable, value)

    with monkeypatch.context() as patch:
        patch.setattr(keras.Variable, "assign", interrupted)
        with pytest.raises(KeyboardInterrupt):
            parallel.load_weights(tmp_path / "w.h5")
    for weight, value in zip(parallel.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def mse(y, y_pred):
    """A loss of the user's own with a name of Keras."""
    return 100 * ops.mean(ops.abs(y - y_pred))


def test_a_loss_of_the_users_own_keeps_its_name(tmp_path):
    x, y = random_rows(8, 3), random_rows(8, 2)
    parallel = multi_gpu_model(net(loss=mse, optimizer="sgd"), gpus=2)
    expected = parallel.evaluate(x, y, verbose=0)
    for save in (save_model_hdf5, lambda model, path: model.save(path)):
        save(parallel, tmp_path / "m.h5")
        again = load_model_hdf5(tmp_path / "m.h5", custom_objects={"mse": mse})
        np.testing.assert_allclose(again.evaluate(x, y, verbose=0), expected, rtol=1e-5)
        with pytest.raises(ValueError, match="Could not locate function 'mse'"):
            load_model_hdf5(tmp_path / "m.h5")


def test_a_registered_optimizer_may_have_the_name_of_one_of_keras(tmp_path):
    with keras.saving.custom_object_scope({}):

        @keras.saving.register_keras_serializable()
        class SGD(keras.optimizers.SGD):
            """Climbs."""

        save_model_hdf5(net(loss="mse", optimizer=SGD()), tmp_path / "m.h5")
        assert type(load_model_hdf5(tmp_path / "m.h5").optimizer) is SGD
        del keras.saving.get_custom_objects()["Custom>SGD"]


@pytest.mark.parametrize("name", ["Lamb", "Lion", "Nadam"])
def test_every_optimizer_of_keras_comes_back_from_hdf5(name, tmp_path):
    model = net(loss="mse", optimizer=getattr(keras.optimizers, name)(0.01))
    model.fit(random_rows(8, 3), random_rows(8, 2), verbose=0)
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5").optimizer
    for variable, expected in zip(again.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(variable, expected)


def test_the_scale_of_a_loss_comes_back_from_a_file_of_before_the_first_step(tmp_path):
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.25))
    save_model_hdf5(net(loss="mse", optimizer=scaled), tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5").optimizer
    assert (float(again.dynamic_scale), float(again.inner_optimizer.learning_rate)) == (2**15, 0.25)


@pytest.mark.parametrize("save", [save_model_hdf5, save_model_weights_hdf5, lambda model, path: model.save(path)])
def test_numbers_of_bfloat16_are_written_as_numbers(save, tmp_path):
    parallel, other = (
        multi_gpu_model(keras.Sequential([keras.Input((3,)), layers.Dense(4, dtype="bfloat16")]), gpus=2)
        for _ in range(2)
    )
    save(parallel, tmp_path / "m.h5")
    load_model_weights_hdf5(other, tmp_path / "m.h5")
    for weight, expected in zip(other.get_weights(), parallel.get_weights(), strict=True):
        np.testing.assert_array_equal(weight.astype("float32"), expected.astype("float32"))


def test_a_quantized_model_is_read_in_safe_mode(tmp_path):
    model = net(loss="mse", optimizer="sgd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the input layer has nothing to quantize
        model.quantize("int8")
    save_model_hdf5(model, tmp_path / "m.h5")
    x = random_rows(5, 3)
    np.testing.assert_array_equal(load_model_hdf5(tmp_path / "m.h5").predict(x, verbose=0), model.predict(x, verbose=0))


def test_names_of_weights_may_look_like_counted_ones(tmp_path):
    class Named(layers.Layer):
        def build(self, shape):
            self.numbered = [self.add_weight(shape=(3,), name=name) for name in ("w_1", "w", "w")]

        def call(self, x):
            return x * sum(self.numbered)

    template = keras.Sequential([keras.Input((3,)), Named()])
    expected = template.get_weights()
    save_model_weights_hdf5(template, tmp_path / "w.h5")
    template.set_weights([weight + 1 for weight in expected])
    for weight, value in zip(load_model_weights_hdf5(template, tmp_path / "w.h5").get_weights(), expected, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_other_threads_build_models_while_one_reads_a_file(tmp_path):
    save_model_hdf5(net(loss="mse", optimizer="sgd"), tmp_path / "m.h5")
    errors: list[Exception] = []
    done = threading.Event()

    def build():
        while not done.is_set():
            try:
                layers.Dense(500).build((None, 500))
            except ValueError as error:
                errors.append(error)

    other = threading.Thread(target=build)
    other.start()
    try:
        for _ in range(2):
            load_model_hdf5(tmp_path / "m.h5")
    finally:
        done.set()
        other.join()
    assert not errors


def test_a_file_may_begin_with_something_of_another_program(tmp_path):
    with h5py.File(tmp_path / "m.h5", "w", userblock_size=1024) as file:
        keras.saving.save_model(net(), multigpu.saving.hdf5_writer.NamedFile(file.id))
    template = net()
    load_model_weights_hdf5(template, tmp_path / "m.h5")


def test_a_path_may_begin_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    multi_gpu_model(net(), gpus=2).save("~backup.keras")
    assert (tmp_path / "~backup.keras").exists()


def test_an_error_about_a_file_of_the_users_own_stays_as_it_is(tmp_path):
    class WithAssets(layers.Dense):
        def save_assets(self, folder):
            raise FileNotFoundError(2, "no vocabulary", "/my/own/vocab.txt")

    with pytest.raises(FileNotFoundError, match="no vocabulary"):
        multi_gpu_model(keras.Sequential([keras.Input((3,)), WithAssets(2)]), gpus=2).save(tmp_path / "m.keras")


def test_a_file_that_is_mounted_by_itself_is_named_as_such(tmp_path, monkeypatch):
    def replace(source, target):
        raise OSError(errno.EBUSY, "Device or resource busy", source)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="it is mounted by itself, so it cannot be replaced"):
        save_model_hdf5(net(), tmp_path / "m.h5")


@pytest.mark.parametrize("reason", ["OSError: [Errno 28] No space left on device", "OSError: Can't write (errno = 28)"])
def test_a_full_folder_of_temporary_files_is_no_damaged_file(reason):
    error = damaged("m.h5", "which is damaged", reason)
    assert "room for a copy of 'm.h5' in the folder for temporary files" in str(error)
    assert "which is damaged: OSError: truncated" in str(damaged("m.h5", "which is damaged", "OSError: truncated"))


def test_a_loss_that_is_missing_is_read_without_compilation(tmp_path):
    def unknown(y, y_pred):
        return ops.mean(ops.abs(y - y_pred))

    save_model_hdf5(net(loss=unknown, optimizer="sgd"), tmp_path / "old.h5")
    with pytest.raises(ValueError, match=r"Read it by `load_model_hdf5\(\)` with `compile=False`"):
        multigpu.clean_parallel_hdf5(tmp_path / "old.h5", tmp_path / "new.h5")
