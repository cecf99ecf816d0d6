"""Weights in HDF5 files: any name, any model of the same structure, and nothing changed if they do not fit."""

import inspect
import json
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from equality import adam_net

from multigpu import load_model_hdf5, load_model_weights_hdf5, multi_gpu_model, save_model_hdf5, save_model_weights_hdf5
from multigpu.saving.file_errors import UntrustedFileError
from multigpu.saving.weight_lists import list_names, listed_names

layers = keras.layers

pytestmark = pytest.mark.usefixtures("forked")


def random_weights(model: keras.Model, seed: int = 1) -> list[np.ndarray]:
    """Gives a model random weights, and returns them."""
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    return model.get_weights()


def assert_weights(model: keras.Model, expected: list[np.ndarray]) -> None:
    for actual, value in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(actual, value)


def test_the_arguments_are_those_of_the_old_functions():
    def names_and_defaults(function):
        return [(name, parameter.default) for name, parameter in inspect.signature(function).parameters.items()]

    none = inspect.Parameter.empty
    assert names_and_defaults(save_model_hdf5) == [
        *(("object", none), ("filepath", none), ("overwrite", True), ("include_optimizer", True)),
    ]
    assert names_and_defaults(load_model_hdf5) == [
        *(("filepath", none), ("custom_objects", None), ("compile", True)),
        *(("safe_mode", True), ("max_seconds", 60), ("max_gigabytes", 2)),  # new
    ]
    assert names_and_defaults(save_model_weights_hdf5) == [("object", none), ("filepath", none), ("overwrite", True)]
    assert names_and_defaults(load_model_weights_hdf5) == [
        *(("object", none), ("filepath", none), ("by_name", False), ("skip_mismatch", False), ("reshape", False)),
        ("safe_mode", True),  # new
    ]


@pytest.mark.parametrize("name", ["w.h5", "w.hdf5", "weights", "model.keras.bak", "w.weights.h5"])
@pytest.mark.parametrize("kind", [str, Path])
def test_any_file_name_is_taken(name, kind, tmp_path):
    template = adam_net()
    expected = random_weights(template)
    parallel = multi_gpu_model(template, gpus=2)
    assert save_model_weights_hdf5(parallel, kind(tmp_path / name)) is True
    other = multi_gpu_model(adam_net(), gpus=3)
    assert load_model_weights_hdf5(other, kind(tmp_path / name)) is other
    assert_weights(other.template, expected)


@pytest.mark.parametrize("ending", [".h5", ".keras", ".weights.h5"])
def test_the_weights_of_a_whole_model_load_under_any_name(ending, tmp_path):
    model = adam_net()
    expected = random_weights(model)
    (model.save_weights if ending == ".weights.h5" else model.save)(tmp_path / f"m{ending}")
    (tmp_path / f"m{ending}").rename(tmp_path / "renamed")
    other = adam_net()
    load_model_weights_hdf5(other, tmp_path / "renamed")
    assert_weights(other, expected)


def test_by_name_gives_layers_the_weights_of_their_namesake_and_leaves_the_others(tmp_path):
    saved = keras.Sequential([keras.Input((4,)), layers.Dense(5, name="body"), layers.Dense(2, name="old_head")])
    expected = random_weights(saved)
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(5, name="body"), layers.Dense(7, name="new_head")])
    before = model.get_weights()
    load_model_weights_hdf5(model, tmp_path / "w.h5", by_name=True)
    assert_weights(model, [*expected[:2], *before[2:]])


def test_skip_mismatch_leaves_out_what_does_not_fit_and_says_so(tmp_path):
    def build(units):
        return keras.Sequential([keras.Input((4,)), layers.Dense(5, name="body"), layers.Dense(units, name="head")])

    saved, model = build(2), build(7)
    expected, before = random_weights(saved), model.get_weights()
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    for by_name in (False, True):
        with pytest.raises(ValueError, match="Expected shape") as raised:
            load_model_weights_hdf5(model, tmp_path / "w.h5", by_name=by_name)
        assert str(raised.value).startswith(
            "Expected shape (5, 7) for weight 'sequential_1/head/kernel' of layer 'head'. "
            "Received: shape (5, 2) ('sequential/head/kernel') in the file."
        )
        assert_weights(model, before)
    for by_name in (False, True):
        model = build(7)
        before = model.get_weights()
        with pytest.warns(UserWarning, match=r"Left out: the file has shape \(5, 2\)"):
            load_model_weights_hdf5(model, tmp_path / "w.h5", by_name=by_name, skip_mismatch=True)
        assert_weights(model, [*expected[:2], *before[2:]])


def test_reshape_fits_as_many_numbers_into_another_shape(tmp_path):
    saved = keras.Sequential([keras.Input((6, 6, 2)), layers.Conv2D(3, 1)])
    model = keras.Sequential([keras.Input((2,)), layers.Dense(3)])
    expected = random_weights(saved)
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    with pytest.raises(ValueError, match="Expected shape"):
        load_model_weights_hdf5(model, tmp_path / "w.h5")
    load_model_weights_hdf5(model, tmp_path / "w.h5", reshape=True)
    assert_weights(model, [expected[0].reshape(2, 3), expected[1]])


def test_another_number_of_layers_is_an_error_that_lists_them(tmp_path):
    save_model_weights_hdf5(keras.Sequential([keras.Input((4,)), layers.Dense(5, name="one")]), tmp_path / "w.h5")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(5, name="first"), layers.Dense(5, name="second")])
    with pytest.raises(
        ValueError,
        match=r"Expected 2 layers with weights, as in the model: first, second.*Received: 1 in the file: one\. .* pass "
        "`by_name=True` to load the layers of the same name",
    ):
        load_model_weights_hdf5(model, tmp_path / "w.h5")


def test_names_that_differ_by_counters_alone_are_the_same(tmp_path):
    def build():
        return keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(2, 3), layers.Conv2D(2, 3), layers.Flatten()])

    saved, other = build(), build()  # conv2d, conv2d_1 and conv2d_2, conv2d_3
    expected = random_weights(saved)
    assert {layer.name for layer in saved.layers}.isdisjoint(layer.name for layer in other.layers)
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    load_model_weights_hdf5(other, tmp_path / "w.h5")
    assert_weights(other, expected)


@pytest.mark.parametrize("frozen", ["saved", "loaded"])
def test_freezing_a_part_of_a_nested_model_before_or_after_saving_mixes_nothing_up(frozen, tmp_path):
    """Keras lists trainable weights first; all weights here have one shape, so that only names tell them apart."""

    def build():
        inner = keras.Sequential(
            [keras.Input((3,)), layers.Dense(3, use_bias=False, name="a"), layers.Dense(3, use_bias=False, name="b")]
        )
        return keras.Sequential([keras.Input((3,)), inner])

    saved, other = build(), build()
    expected = random_weights(saved)
    (saved if frozen == "saved" else other).layers[0].layers[0].trainable = False
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    load_model_weights_hdf5(other, tmp_path / "w.h5")
    assert_weights(other, expected if frozen == "loaded" else saved.get_weights())
    for name in "ab":
        np.testing.assert_array_equal(other.layers[0].get_layer(name).kernel, saved.layers[0].get_layer(name).kernel)


def test_stock_keras_reads_the_listed_weights_of_a_frozen_model(tmp_path):
    saved, other = adam_net(), adam_net()
    saved.layers[0].trainable = False
    expected = random_weights(saved)
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    other.load_weights(tmp_path / "w.h5")
    assert_weights(other, expected)


def test_weights_of_the_model_itself_are_saved_and_loaded(tmp_path):
    class Scaled(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(2,))
            self.dense.build(shape)

        def call(self, x):
            return self.dense(x) * self.scale

    saved, other = Scaled(), Scaled()
    for model in (saved, other):
        model(np.ones((1, 3)))
    expected = random_weights(saved)
    save_model_weights_hdf5(saved, tmp_path / "w.h5")
    load_model_weights_hdf5(other, tmp_path / "w.h5")
    assert_weights(other, expected)


def test_list_and_listed_names_are_inverse_also_for_lists_too_long_for_one_attribute(tmp_path):
    with h5py.File(tmp_path / "names.h5", "w") as file:
        for number, names in enumerate([[], ["one"], ["ä", "b"], [f"{'long' * 30}/{index}" for index in range(3000)]]):
            list_names(file, f"names{number}_", names)
            assert listed_names(file, f"names{number}_") == names


@pytest.mark.parametrize("ending", [".weights.h5", ".keras", ".h5", ".weights.json"])
def test_a_file_that_fits_in_part_changes_nothing(ending, tmp_path):
    def build(units):
        model = keras.Sequential([keras.Input((5,)), layers.Dense(8), layers.Dense(units)])
        model.compile(optimizer="sgd", loss="mse")
        model.optimizer.build(model.trainable_variables)
        return model

    parallel = multi_gpu_model(build(3), gpus=2)
    (parallel.save_weights if ".weights." in ending else parallel.save)(
        tmp_path / f"w{ending}", **({"max_shard_size": 2e-7} if ending == ".weights.json" else {})
    )
    other = multi_gpu_model(build(4), gpus=2)
    before = random_weights(other.template, seed=5)
    with pytest.raises(ValueError, match=r"Expected weights that fit|Expected shape|could not be loaded"):
        other.load_weights(tmp_path / f"w{ending}")
    assert_weights(other.template, before)


def test_by_name_is_refused_where_the_file_has_no_names_of_layers(tmp_path):
    adam_net().save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(UntrustedFileError, match="Leave out `by_name=True`"):
        load_model_weights_hdf5(adam_net(), tmp_path / "w.weights.h5", by_name=True)


def test_a_loss_of_ones_own_is_passed_or_asked_for(tmp_path):
    def own_loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)

    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile(optimizer="sgd", loss=own_loss)
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5", custom_objects={"own_loss": own_loss})
    x, y = np.ones((4, 3)), np.zeros((4, 2))
    assert again.evaluate(x, y, verbose=0) == model.evaluate(x, y, verbose=0)
    with pytest.raises(ValueError, match=r"Expected a model that can be compiled as it was.*own_loss.*`compile=False`"):
        load_model_hdf5(tmp_path / "m.h5")
    assert not load_model_hdf5(tmp_path / "m.h5", compile=False).compiled


def test_a_model_that_was_compiled_and_not_trained_yet_loads_without_a_warning(tmp_path):
    """And trains on as it does itself: warnings are errors here."""
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Adam(0.25), loss="mse")
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5")
    for each in (model, again):
        each.fit(np.ones((4, 3)), np.zeros((4, 2)), epochs=2, verbose=0)
    assert_weights(again, model.get_weights())


def test_state_of_an_optimizer_that_has_stepped_is_not_taken_in_part(tmp_path):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(np.ones((4, 3)), np.zeros((4, 2)), verbose=0)
    save_model_hdf5(model, tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5", "a") as file:
        config = json.loads(file.attrs["training_config"])
        config["optimizer_config"]["config"]["momentum"] = 0.9
        file.attrs["training_config"] = json.dumps(config)
    with pytest.warns(UserWarning, match="4 variables of the shapes that SGD has. Received 2 of other shapes"):
        again = load_model_hdf5(tmp_path / "m.h5")
    assert again.optimizer.iterations == 0


@pytest.mark.quick
def test_how_the_model_was_compiled_comes_back_in_full(tmp_path):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile(
        optimizer=keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5), clipnorm=1.0, use_ema=True
        ),
        loss=[keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)],
        loss_weights=[0.5],
        metrics=[["mae", keras.metrics.MeanSquaredError(name="squares")]],
        run_eagerly=True,
        steps_per_execution=1,
    )
    x, y = np.ones((4, 3)), np.zeros((4, 2))
    model.fit(x, y, verbose=0)
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5")
    assert again.run_eagerly
    assert again.evaluate(x, y, verbose=0, return_dict=True) == model.evaluate(x, y, verbose=0, return_dict=True)
    for each in (model, again):
        each.fit(x, y, verbose=0)
    assert_weights(again, model.get_weights())
    for ours, theirs in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_optimizer_whose_state_does_not_fit_starts_anew_with_a_warning(tmp_path):
    model = adam_net()
    model.optimizer.build(model.trainable_variables)
    save_model_hdf5(model, tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file["optimizer_weights"].attrs["weight_names"] = file["optimizer_weights"].attrs["weight_names"][:-1]
    with pytest.warns(UserWarning, match="state of the optimizer to have 10 variables.*Received 9"):
        again = load_model_hdf5(tmp_path / "m.h5")
    assert_weights(again, model.get_weights())
    assert again.optimizer.iterations == 0


def adapted(data):
    """A model whose first layer has computed constants from its weights, which an assignment does not change."""
    scaled = keras.layers.Normalization()
    scaled.adapt(data)
    return keras.Sequential([keras.Input((3,)), scaled, keras.layers.Dense(2)])


@pytest.mark.parametrize("kind", ["model", "weights", "weights by name", "weights of Keras 3", "nested"])
def test_an_adapted_normalization_computes_with_the_loaded_weights(kind, tmp_path):
    x = np.random.default_rng(0).uniform(0, 5, (20, 3))
    template, other = adapted(x), adapted(x + 7)
    if kind == "nested":
        template, other = (keras.Sequential([keras.Input((3,)), model]) for model in (template, other))
    path = tmp_path / ("a.weights.h5" if kind == "weights of Keras 3" else "a.h5")
    if kind == "model":
        save_model_hdf5(multi_gpu_model(template, gpus=2), path)
        other = load_model_hdf5(path)
    elif kind == "weights of Keras 3":
        template.save_weights(path)
        load_model_weights_hdf5(other, path)
    else:
        for mine, theirs in zip(other.layers, template.layers, strict=True):
            mine.name = theirs.name
        save_model_weights_hdf5(template, path)
        load_model_weights_hdf5(other, path, by_name=kind == "weights by name")
    np.testing.assert_array_equal(other.predict(x, verbose=0), template.predict(x, verbose=0))
