"""Hundreds of spoiled files: no crash, no hang, and never a model that is changed in part.

Most are copied by processes that are forked from one which has imported h5py, since starting Python so often
would take minutes; they run the same function under the same limits. Some take the real way from end to end.
"""

import contextlib
import shutil

import keras
import numpy as np
from keras2_files import cnn
from spoiled_files import assert_whole_or_unchanged, refused, spoil, spoil_config, spoil_structure

from multigpu import load_model_hdf5, load_model_weights_hdf5, save_model_hdf5

NUM_FILES, NUM_REAL, NUM_MODELS = 120, 4, 40  # `make soak` has ten thousand


def test_spoiled_files_change_a_model_as_a_whole_or_not_at_all(forked, tmp_path):
    model = cnn()
    before = [np.full(weight.shape, 123.0, "float32") for weight in model.get_weights()]
    num_refused = 0
    for seed in range(NUM_FILES):
        model.set_weights(before)
        path = spoil(tmp_path, seed)
        is_refused = refused(lambda path=path: load_model_weights_hdf5(model, path), seed)
        assert_whole_or_unchanged(model, before, is_refused, seed)
        num_refused += is_refused
    assert NUM_FILES // 4 < num_refused < NUM_FILES  # some are spoiled where nobody looks


def test_spoiled_files_take_the_real_way_too(tmp_path):
    model = cnn()
    before = [np.full(weight.shape, 123.0, "float32") for weight in model.get_weights()]
    for seed in range(NUM_FILES, NUM_FILES + NUM_REAL):
        model.set_weights(before)
        path = spoil(tmp_path, seed)
        is_refused = refused(lambda path=path: load_model_weights_hdf5(model, path), seed)
        assert_whole_or_unchanged(model, before, is_refused, seed)


def test_spoiled_models_are_built_or_refused(forked, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    save_model_hdf5(model, tmp_path / "good.h5")
    answers = set()
    for seed in range(NUM_MODELS):
        random = np.random.default_rng(seed)
        path = tmp_path / "spoiled.h5"
        shutil.copyfile(tmp_path / "good.h5", path)
        with contextlib.suppress(KeyError):
            [spoil_config, spoil_structure][seed % 2](path, random)
        answers.add(refused(lambda path=path: load_model_hdf5(path), seed))
    assert answers == {True, False}
