"""Files that people saved from the old parallel model give the template's weights."""

import json
import os
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
from keras2_files import OLD, TEMPLATES, cnn, old_weights, seq, wrapped, write_listed

from multigpu import clean_parallel_hdf5, load_model_hdf5, load_model_weights_hdf5, multi_gpu_model
from multigpu.saving.keras2_parallel_files import nested_template
from multigpu.saving.layer_matching import listed_group
from multigpu.saving.weight_lists import listed_layers

SAID = "parallel model of the old `multi_gpu_model`. Only the template, "

pytestmark = pytest.mark.usefixtures("forked")


def assert_weights(model: keras.Model, expected: list[np.ndarray]) -> None:
    for actual, value in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(actual, value)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("kind", ["parallel-model", "parallel-weights"])
def test_a_file_of_the_old_parallel_model_gives_the_templates_weights_and_says_so(name, kind):
    template = TEMPLATES[name]()
    with pytest.warns(UserWarning, match=SAID) as warned:
        assert load_model_weights_hdf5(template, OLD / f"{name}-{kind}.h5") is template
    assert_weights(template, old_weights(name))
    assert warned[0].filename == __file__  # it points at the user's line


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_file_of_the_old_template_gives_its_weights_in_silence(name):
    template = TEMPLATES[name]()
    load_model_weights_hdf5(template, OLD / f"{name}-template-model.h5")
    assert_weights(template, old_weights(name))


@pytest.mark.parametrize("name", TEMPLATES)
def test_old_files_load_into_a_parallel_model(name):
    parallel = multi_gpu_model(TEMPLATES[name](), gpus=3)
    with pytest.warns(UserWarning, match=SAID):
        parallel.load_weights(OLD / f"{name}-parallel-weights.h5")
    assert_weights(parallel.template, old_weights(name))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_keras_2_loads_as_a_model(name):
    model = load_model_hdf5(OLD / f"{name}-template-model.h5")
    assert_weights(model, old_weights(name))
    assert model.input_shape == TEMPLATES[name]().input_shape
    assert not model.compiled


@pytest.mark.quick
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_whole_old_parallel_model_loads_as_its_template_with_its_optimizer(name):
    path = OLD / f"{name}-parallel-model.h5"
    with pytest.warns(UserWarning, match=SAID):
        model = load_model_hdf5(path)
    assert_weights(model, old_weights(name))
    assert not any(isinstance(layer, keras.layers.Lambda) for layer in model.layers)
    assert model.compiled
    with h5py.File(path) as file:
        state = file["optimizer_weights"]
        assert model.optimizer.iterations == state["iteration:0"][()] > 0
        first_moments = [state[name] for name in state.attrs["weight_names"] if "/m/" in name]
        slots = [variable for variable in model.optimizer.variables if variable.name.endswith("momentum")]
        for slot, saved in zip(slots, first_moments, strict=True):
            np.testing.assert_array_equal(slot, saved)


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_old_file_is_turned_into_a_clean_one(name, tmp_path):
    with pytest.warns(UserWarning, match=SAID):
        assert clean_parallel_hdf5(OLD / f"{name}-parallel-model.h5", tmp_path / "clean.h5") is True
    with h5py.File(tmp_path / "clean.h5") as file:
        assert nested_template(listed_layers(listed_group(file))) is None
        assert "Lambda" not in file.attrs["model_config"]
    clean = keras.models.load_model(tmp_path / "clean.h5")  # stock Keras reads it
    assert_weights(clean, old_weights(name))
    assert clean.compiled
    with pytest.raises(FileExistsError, match="overwrite=True"):
        clean_parallel_hdf5(OLD / f"{name}-template-model.h5", tmp_path / "clean.h5")


def test_a_template_of_two_inputs_comes_out_of_six_lambdas(tmp_path):
    left, right = keras.Input((3,)), keras.Input((4,))
    both = keras.layers.Concatenate()([keras.layers.Dense(2)(left), keras.layers.Dense(2)(right)])
    saved = keras.Model([left, right], keras.layers.Dense(1)(both))
    names = [f"dense_{layer}/{part}:0" for layer in (7, 8, 9) for part in ("kernel", "bias")]
    with h5py.File(tmp_path / "w.h5", "w") as file:
        write_listed(file, wrapped(saved, names, num_inputs=2, gpus=3))
    template = keras.models.clone_model(saved)
    with pytest.warns(UserWarning, match=SAID):
        load_model_weights_hdf5(template, tmp_path / "w.h5")
    assert_weights(template, saved.get_weights())


def test_a_template_of_one_layer_with_weights_comes_out(tmp_path):
    saved = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with h5py.File(tmp_path / "w.h5", "w") as file:
        write_listed(file, wrapped(saved, ["dense_7/kernel:0", "dense_7/bias:0"], gpus=2))
    template = keras.models.clone_model(saved)
    with pytest.warns(UserWarning, match=SAID):
        load_model_weights_hdf5(template, tmp_path / "w.h5")
    assert_weights(template, saved.get_weights())


def test_a_nested_template_with_old_counters_comes_out(tmp_path):
    def build() -> keras.Model:
        inner = keras.Sequential([keras.Input((8, 8, 2)), keras.layers.Conv2D(3, 3), keras.layers.BatchNormalization()])
        image = keras.Input((8, 8, 2))
        flat = keras.layers.Flatten()(keras.layers.Conv2D(2, 3)(inner(image)))
        return keras.Model(image, keras.layers.Dense(2)(flat))

    saved, template = build(), build()
    saved.set_weights([np.random.default_rng(0).normal(size=w.shape) for w in saved.get_weights()])
    names = [
        *("conv2d_11/kernel:0", "conv2d_11/bias:0", "batch_normalization_5/gamma:0", "batch_normalization_5/beta:0"),
        *("conv2d_12/kernel:0", "conv2d_12/bias:0", "dense_4/kernel:0", "dense_4/bias:0"),
        *("batch_normalization_5/moving_mean:0", "batch_normalization_5/moving_variance:0"),
    ]
    with h5py.File(tmp_path / "w.h5", "w") as file:
        write_listed(file.create_group("model_weights"), wrapped(saved, names, gpus=8))
    with pytest.warns(UserWarning, match=SAID):
        load_model_weights_hdf5(template, tmp_path / "w.h5")
    assert_weights(template, saved.get_weights())


def test_a_frozen_template_gets_the_weights_of_one_that_was_not(tmp_path):
    """Freezing changes the order in which Keras lists weights: the moving statistics are last no more."""
    template = cnn()
    template.trainable = False
    with pytest.warns(UserWarning, match=SAID):
        load_model_weights_hdf5(template, OLD / "cnn-parallel-weights.h5")
    assert_weights(template, old_weights("cnn"))


def test_a_mismatch_names_layer_and_both_shapes_and_changes_nothing():
    wide = keras.Sequential([keras.Input((10,)), keras.layers.Dense(16), keras.layers.Dense(2, name="head")])
    before = wide.get_weights()
    with pytest.warns(UserWarning, match=SAID), pytest.raises(ValueError, match="Expected") as raised:
        load_model_weights_hdf5(wide, OLD / "seq-parallel-weights.h5")
    assert str(raised.value) == (
        "Expected shape (16, 2) for weight 'sequential/head/kernel' of the template (layer 'sequential_1' in the file)."
        " Received: shape (16, 1) ('d2/kernel:0') in the file. Load it into a model of the same structure, or pass "
        f"`skip_mismatch=True` to skip layers that do not fit. The file is {str(OLD / 'seq-parallel-weights.h5')!r}."
    )
    assert_weights(wide, before)


def test_a_model_with_lambdas_of_its_own_is_not_taken_for_a_parallel_one(tmp_path):
    def build() -> keras.Model:
        inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(2)])
        x = keras.Input((3,))
        double = keras.layers.Lambda(_double)(keras.layers.Lambda(_double)(x))
        return keras.Model(x, inner(double))

    saved, other = build(), build()
    path = tmp_path / "model.h5"
    saved.save_weights(tmp_path / "w.weights.h5")
    with h5py.File(path, "w") as file:
        values = [weight.numpy() for weight in saved.weights]
        names = [f"dense_{layer}/{part}:0" for layer in (1, 2) for part in ("kernel", "bias")]
        write_listed(
            file,
            {"input_1": [], "lambda_1": [], "lambda_2": [], "sequential_1": list(zip(names, values, strict=True))},
        )
    load_model_weights_hdf5(other, path)  # no warning
    assert_weights(other, saved.get_weights())


def _double(x):
    return x + x


def test_the_optimizer_of_keras_2_10_and_before_is_put_in_order(tmp_path):
    """It listed first all slots of one kind, then all of the next; names ended in the kind."""
    with h5py.File(OLD / "seq-template-model.h5") as old, h5py.File(tmp_path / "old.h5", "w") as file:
        old.copy("model_weights", file)
        file.attrs["model_config"], file.attrs["keras_version"] = old.attrs["model_config"], "2.4.0"
        file.attrs["training_config"] = json.dumps(
            {
                "loss": {"class_name": "MeanSquaredError", "config": {"reduction": "auto", "name": "mse"}},
                "metrics": [
                    [{"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}}]
                ],
                "weighted_metrics": None,
                "loss_weights": None,
                "optimizer_config": {
                    "class_name": "Adam",
                    "config": {"name": "Adam", "learning_rate": 0.5, "decay": 0.0, "beta_1": 0.8, "amsgrad": False},
                },
            }
        )
        weights = seq().trainable_weights
        group = file.create_group("optimizer_weights")
        names = ["Adam/iter:0"]
        group["Adam/iter:0"] = np.int64(7)
        for number, kind in enumerate("mv"):
            for index, (weight, layer) in enumerate(
                zip(weights, ("d1/kernel", "d1/bias", "d2/kernel", "d2/bias"), strict=True)
            ):
                names.append(f"Adam/{layer}/{kind}:0")
                group[names[-1]] = np.full(weight.shape, 10 * number + index, "float32")
        group.attrs["weight_names"] = np.array([name.encode() for name in names])
    model = load_model_hdf5(tmp_path / "old.h5")
    assert (model.optimizer.iterations, model.optimizer.beta_1) == (7, 0.8)
    assert float(model.optimizer.learning_rate) == 0.5
    slots = [variable.numpy() for variable in model.optimizer.variables][2:]
    assert [slot.flat[0] for slot in slots] == [0, 10, 1, 11, 2, 12, 3, 13]
    evaluated = model.evaluate(np.ones((2, 10)), np.ones((2, 1)), verbose=0, return_dict=True)
    assert evaluated.keys() == {"loss", "mean_absolute_error"}


IN_R = """
library(multigpu)
simulate_gpus(2)
said <- tryCatch(load_model_hdf5("{old}"), warning = conditionMessage)
stopifnot(is.character(said), grepl("template", said))
said <- tryCatch(clean_parallel_hdf5("{old}", "clean.h5", safe_mode = FALSE), warning = conditionMessage)
stopifnot(is.character(said), grepl("template", said))
"""


def test_r_users_are_told_by_a_warning_of_r(tmp_path):
    (tmp_path / "load.R").write_text(IN_R.format(old=OLD / "seq-parallel-model.h5"))
    environment = {**os.environ, "R_LIBS": os.path.join(sys.prefix, "r"), "RETICULATE_PYTHON": sys.executable}
    done = subprocess.run(
        ["Rscript", "load.R"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
