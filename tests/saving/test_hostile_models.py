"""Untrusted configurations: what they name is a part of a model, ends in limits, or is refused with the file's name.

What is looked up is looked up in this process, so that what it would do can be seen; limits are those of processes.
"""

import json
import math
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from cases import soak
from keras.src import api_export
from keras.src.saving import object_registration, serialization_lib

from multigpu import clean_parallel_hdf5, load_model_hdf5, load_model_weights_hdf5, save_model_hdf5
from multigpu.saving import sandbox
from multigpu.saving.allowed_objects import CodeInFile, only_allowed
from multigpu.saving.build_model import build, is_deeper_than
from multigpu.saving.file_errors import UntrustedFileError
from multigpu.saving.sandboxed_build import Trial, stand_in
from multigpu.saving.untrusted_hdf5 import opened

layers = keras.layers


def named(module, name, config=None, **more):
    """What names a class as Keras 3 does."""
    return {"module": module, "class_name": name, "config": {} if config is None else config, **more}


@pytest.fixture
def good(tmp_path):
    """A file of a good model."""
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8), layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    save_model_hdf5(model, tmp_path / "good.h5")
    return tmp_path / "good.h5"


def spoil(path, change):
    """Changes the configurations in a file: that of the model, and how it was compiled."""
    with h5py.File(path, "r+") as file:
        configs = [json.loads(file.attrs[name]) for name in ("model_config", "training_config")]
        change(*configs)
        file.attrs["model_config"], file.attrs["training_config"] = map(json.dumps, configs)
    return path


def build_here(path, custom_objects=None):
    """Builds a model in this process, without one that tries it first."""
    with h5py.File(path) as file:
        return build(file, path, custom_objects, compile=True, safe_mode=True)


def dense(model):
    return model["config"]["layers"][1]["config"]


PLACES = {
    "layer": lambda it, model, _: model["config"]["layers"].append(it),
    "layer in a wrapper": lambda it, model, _: model["config"]["layers"].append(
        {"class_name": "TimeDistributed", "config": {"layer": it}}
    ),
    "layer in a model": lambda it, model, _: model["config"]["layers"].append(
        {"class_name": "Sequential", "config": {"name": "inner", "layers": [it]}}
    ),
    "cell": lambda it, model, _: model["config"]["layers"].append({"class_name": "RNN", "config": {"cell": it}}),
    "activation": lambda it, model, _: dense(model).update(activation=it),
    "initializer": lambda it, model, _: dense(model).update(kernel_initializer=it),
    "tuple": lambda it, model, _: dense(model).update(activation={"class_name": "__tuple__", "items": [it]}),
    "loss": lambda it, _, training: training.update(loss=it),
    "nested loss": lambda it, _, training: training.update(loss={"a": [it]}),
    "metric": lambda it, _, training: training.update(metrics=[it]),
    "function of a metric": lambda it, _, training: training.update(
        metrics=[{"class_name": "MeanMetricWrapper", "config": {"fn": it}}]
    ),
    "optimizer": lambda it, _, training: training.update(optimizer_config=it),
    "learning rate": lambda it, _, training: training["optimizer_config"]["config"].update(learning_rate=it),
}
GALLERY = {"images": [[1]], "path": "picture.png"}
BAD = {
    "function, dotted name": named("keras", "visualization.plot_image_gallery", GALLERY),
    "function, with its module": named("keras.visualization", "plot_image_gallery", GALLERY),
    "function, as a function": named("keras.visualization", "function", "plot_image_gallery"),
    "function of settings": named("keras", "function", "config.set_floatx"),
    "function without a registered name": named("keras", "function", "config.set_floatx", registered_name=None),
    "function of built-in names": named("builtins", "function", "deserialize"),
    "name in Keras' module of layers": {"class_name": "deserialize", "config": {"config": named("os", "system")}},
    "other class of Keras": named("keras.callbacks", "TensorBoard", {"log_dir": "here"}),
    "other class of Keras, dotted": named("keras", "callbacks.CSVLogger", {"filename": "here.csv"}),
    "module that would be imported": named("keras.src.testing.test_case", "TestCase"),
    "module that is not there": named("keras.api.layers", "Lambda"),
    "other package": named("subprocess", "Popen", {"args": ["touch", "here"]}, registered_name="Popen"),
    "registered name of nobody": named("keras.layers", "Dense", {"units": 1}, registered_name="Custom>system"),
    "type": {"class_name": "__typespec__", "spec_name": "Popen", "module": "os", "registered_name": None, "config": []},
    "code": {"class_name": "__lambda__", "config": {"value": ["4wAA", None, None]}},
    "name that is no text": named(["keras"], "layers.Dense"),
    "class that is no text": named("keras.layers", {"a": 1}),
}


@pytest.mark.parametrize("place", PLACES)
def test_nothing_but_parts_of_models_is_made_or_called_wherever_it_is_named(place, good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, modules = keras.config.floatx(), set(sys.modules)

    def called(*args, **kwargs):
        pytest.fail(f"called with {args}, {kwargs}")

    for name in ("keras.visualization.plot_image_gallery", "keras.config.set_floatx", "keras.losses.deserialize"):
        monkeypatch.setitem(api_export.REGISTERED_NAMES_TO_OBJS, name, called)
    content = good.read_bytes()
    for what, bad in BAD.items():
        good.write_bytes(content)
        with pytest.raises(ValueError, match="Expected a model "):
            build_here(spoil(good, lambda *configs, bad=bad: PLACES[place](bad, *configs)))
        assert [path.name for path in tmp_path.iterdir()] == ["good.h5"], what
    assert keras.config.floatx() == before
    assert not any(name.endswith("test_case") for name in set(sys.modules) - modules)


@pytest.mark.parametrize("layer", ["Lambda", "TFSMLayer", "TorchModuleWrapper"])
def test_layers_with_code_are_told_by_what_they_are_not_by_how_they_are_spelled(layer, good):
    class_itself = getattr(layers, layer)
    content = good.read_bytes()
    for spelled in (
        named("keras.layers", layer),
        named("keras", f"layers.{layer}"),
        named(class_itself.__module__, layer),
        named("keras.layers", layer, registered_name=layer),
        named("mine", "Mine", registered_name="Mine"),
        {"class_name": "Mine", "config": {}},
        {"class_name": layer if layer == "Lambda" else "Mine", "config": {"function": ["4wAA", None, None]}},
    ):
        good.write_bytes(content)
        for place in ("layer", "layer in a wrapper", "layer in a model"):
            spoil(good, lambda *configs, it=spelled, place=place: PLACES[place](it, *configs))
            with pytest.raises(CodeInFile, match=f"one with a {layer} layer, whose code .* pass `safe_mode=False`"):
                build_here(good, {"Mine": class_itself})


def test_a_text_that_is_the_name_of_a_function_stays_a_text(good):
    """Keras looks up the texts in configurations of Keras 2, among all that its module of layers has."""
    spoil(good, lambda model, _: dense(model).update(activation="deserialize"))
    with pytest.raises(ValueError, match="Could not interpret activation function identifier: deserialize"):
        build_here(good)


def test_other_threads_and_later_calls_of_keras_are_as_they_were(good):
    find, find_registered = serialization_lib._retrieve_class_or_fn, object_registration.get_registered_object
    found = []

    class Asks(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            thread = threading.Thread(
                target=lambda: found.append(
                    keras.saving.deserialize_keras_object(named("keras.config", "function", "floatx"))
                )
            )
            thread.start()
            thread.join()

    spoil(good, lambda model, _: model["config"]["layers"].append(named("mine", "Asks", registered_name="Asks")))
    build_here(good, {"Asks": Asks})
    assert found == [keras.config.floatx]
    assert serialization_lib._retrieve_class_or_fn is find
    assert object_registration.get_registered_object is find_registered


@keras.saving.register_keras_serializable("tests")
class Doubled(layers.Dense):
    """A layer that is registered."""


def own_loss(y, predicted):
    """A loss that is passed."""
    return keras.ops.mean(keras.ops.abs(y - predicted), -1)


def many_parts():
    """A model with parts of all kinds."""
    image = keras.Input((8, 8, 3))
    x = layers.Rescaling(1 / 255)(image)
    x = layers.Conv2D(4, 3, kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(2))(x)
    x = layers.BatchNormalization()(x)
    x = layers.SeparableConv2D(4, 3, activation=layers.LeakyReLU())(x)
    x = layers.Reshape((16, 4))(x)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = layers.RNN([layers.GRUCell(3), layers.SimpleRNNCell(2)], return_sequences=True)(x)
    x = layers.TimeDistributed(keras.Sequential([layers.Dense(4, activation="gelu"), layers.Dropout(0.1)]))(x)
    x = layers.MultiHeadAttention(2, 3)(x, x)
    x = layers.GlobalAveragePooling1D(dtype="mixed_bfloat16")(x)
    x = Doubled(4, kernel_initializer=keras.initializers.RandomNormal(seed=1), activation=own_activation)(x)
    model = keras.Model(image, [layers.Dense(2, name="a")(x), layers.Dense(3, "softmax", name="b")(x)])
    rate = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model.compile(
        optimizer=keras.optimizers.AdamW(rate, clipnorm=1.0),
        loss={"a": keras.losses.Huber(0.5), "b": own_loss},
        metrics={"a": ["mae", keras.metrics.RootMeanSquaredError()], "b": [keras.metrics.AUC(num_thresholds=20)]},
    )
    return model


def own_activation(x):
    """An activation that is passed."""
    return keras.ops.tanh(x)


def with_operations():
    """A mask, operations with the names of layers beside these layers, in a model within the model as well."""
    ids, x = keras.Input((5,), dtype="int32"), keras.Input((4, 3))
    h = layers.LSTM(3)(layers.Embedding(9, 4, mask_zero=True)(ids))
    added = layers.Add()([x, layers.Multiply()([x, x])]) + 1
    inner = keras.Model(x, keras.ops.transpose(added, (0, 2, 1))[:, 1:] * 2)
    y = keras.ops.reshape(inner(keras.ops.relu(x)), (-1, 8))
    y = keras.ops.concatenate([y, h, keras.ops.mean(y, axis=-1, keepdims=True)], axis=-1)
    return keras.Model([ids, x], keras.ops.split(keras.ops.cast(y > 0.1, "float32") * layers.Dense(12)(y), 2, axis=-1))


@pytest.mark.parametrize("safe_mode", [True, False])
def test_models_that_call_operations_load(forked, tmp_path, safe_mode):
    model, rng = with_operations(), np.random.default_rng(0)
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5", safe_mode=safe_mode)
    x = [rng.integers(0, 9, (4, 5)), rng.normal(size=(4, 4, 3)).astype("float32")]
    for one, other in zip(model(x), again(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_operation_that_calls_functions_does_not_load(forked, tmp_path):
    x = keras.Input((3,))
    model = keras.Model(x, keras.ops.square(x))
    model.compile(loss="mse")
    save_model_hdf5(model, tmp_path / "m.h5")
    spoil(tmp_path / "m.h5", lambda config, _: config["config"]["layers"][1].update(class_name="Map"))
    with pytest.raises(ValueError, match="Unknown layer: 'Map'"):
        load_model_hdf5(tmp_path / "m.h5")


def test_good_models_with_parts_of_all_kinds_load(forked, tmp_path):
    model, objects = many_parts(), {"own_loss": own_loss, "own_activation": own_activation}
    model.optimizer.build(model.trainable_variables)
    save_model_hdf5(model, tmp_path / "m.h5")
    again = load_model_hdf5(tmp_path / "m.h5", custom_objects=objects)
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    for one, other in zip(model(x), again(x), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    with pytest.raises(ValueError, match="Could not locate function 'own_activation'"):
        load_model_hdf5(tmp_path / "m.h5")


@pytest.mark.parametrize("safe_mode", [True, soak(False)])
def test_a_scope_around_the_call_passes_objects_too(forked, safe_mode, tmp_path):
    model, objects = many_parts(), {"own_loss": own_loss, "own_activation": own_activation}
    model.optimizer.build(model.trainable_variables)
    save_model_hdf5(model, tmp_path / "m.h5")
    with keras.saving.custom_object_scope(objects):
        alone = load_model_hdf5(tmp_path / "m.h5", safe_mode=safe_mode)
    with keras.saving.custom_object_scope({"own_loss": own_loss}):
        beside = load_model_hdf5(tmp_path / "m.h5", {"own_activation": own_activation}, safe_mode=safe_mode)
        assert keras.saving.get_registered_object("own_loss") is own_loss
        assert keras.saving.get_registered_object("own_activation") is None
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    for again in (alone, beside):
        np.testing.assert_array_equal(again(x)[0], model(x)[0])
        assert again.loss["b"] is own_loss


# Limits ---------------------------------------------------------------------------------------------------------------


def metric(**config):
    return lambda _, training: training.update(metrics=[config])


def many_layers(number):
    relu = {"class_name": "Activation", "config": {"activation": "relu"}}
    return lambda model, _: model["config"]["layers"].extend([relu] * number)


MEMORY = {
    "AUC": metric(class_name="AUC", config={"num_thresholds": 10**8}),
    "AUC beside an object of the caller": metric(class_name="AUC", config={"num_thresholds": 10**8, "name": "Mine"}),
    "MeanIoU": metric(class_name="MeanIoU", config={"num_classes": 10**6}),
    "Normalization": lambda model, _: model["config"]["layers"].append(
        named(
            "keras.layers", "Normalization", {"mean": [1.0], "variance": [1.0]}, build_config={"input_shape": [2**33]}
        )
    ),
}


@pytest.mark.parametrize("bomb", MEMORY.values(), ids=MEMORY)
def test_a_model_that_takes_too_much_memory_is_refused_with_the_limit_and_how_to_raise_it(bomb, forked, good):
    spoil(good, bomb)
    words = r"takes more than 0\.5 GB of memory to build\. Pass a larger `max_gigabytes`, or `safe_mode=False`"
    with pytest.raises(UntrustedFileError, match=words) as raised:
        load_model_hdf5(good, {"Mine": layers.Dense}, max_gigabytes=0.5)
    assert str(good) in str(raised.value)


def test_a_model_that_takes_too_long_is_refused_with_the_limit_and_how_to_raise_it(forked, good):
    spoil(good, many_layers(60))
    words = r"takes more than 0\.05 s of processor time to build\. Pass a larger `max_seconds`, or `safe_mode=False`"
    with pytest.raises(UntrustedFileError, match=words):
        load_model_hdf5(good, max_seconds=0.05)
    with pytest.raises(UntrustedFileError, match=words):
        clean_parallel_hdf5(good, good, overwrite=True, max_seconds=0.05)
    assert len(load_model_hdf5(good).layers) == 62


def test_time_is_limited_here_too_where_objects_of_the_caller_were_not_in_the_trial(good):
    spoil(good, many_layers(60))
    with h5py.File(good) as file, pytest.raises(ValueError, match=r"built within 0\.01 s.* larger `max_seconds`"):
        build(file, good, None, compile=True, safe_mode=True, max_seconds=0.01)


def test_memory_for_the_weights_themselves_is_granted(tmp_path):
    save_model_hdf5(keras.Sequential([keras.Input((5000,)), layers.Dense(6000, use_bias=False)]), tmp_path / "large.h5")
    assert load_model_hdf5(tmp_path / "large.h5", max_gigabytes=0.1).count_params() == 30_000_000  # 120 MB


def test_one_file_is_looked_up_after_the_other(good):
    built = threading.Event()
    reading = threading.Thread(target=lambda: (build_here(good), built.set()))
    with only_allowed(lambda: None):
        reading.start()
        assert not built.wait(0.3)
    reading.join()
    assert built.is_set()


def test_an_optimizer_without_arguments_is_that_of_keras_and_one_with_others_is_refused(good):
    spoil(good, lambda _, training: training["optimizer_config"].update(config=None))
    assert isinstance(load_model_hdf5(good).optimizer, keras.optimizers.Adam)
    spoil(good, lambda _, training: training["optimizer_config"].update(config="text"))
    with pytest.raises(UntrustedFileError):
        load_model_hdf5(good)


def test_a_layer_of_the_caller_stands_in_as_one_that_does_nothing():
    layer, x = stand_in("Layer").from_config({"units": 3}), np.ones((2, 3), "float32")
    np.testing.assert_array_equal(layer(x), x)


@pytest.mark.parametrize("limit", [0, -1, math.nan, "60", None, True])
def test_limits_are_positive_numbers(limit, good):
    for name in ("max_seconds", "max_gigabytes"):
        with pytest.raises(ValueError, match=f"Expected `{name}` to be a positive number. Received: {name}="):
            load_model_hdf5(good, **{name: limit})


def test_a_trial_takes_the_real_way_too(good):
    trial = Trial.of(None, True, math.inf, math.inf)
    with opened(good, trial=trial) as file:
        assert "model_config" in file.attrs
    spoil(good, metric(class_name="AUC", config={"num_thresholds": 10**8}))
    with pytest.raises(UntrustedFileError, match=r"more than 0\.3 GB"):
        load_model_hdf5(good, max_gigabytes=0.3)


LIMITED = """
import importlib.util, json, resource, sys
import h5py
spec = importlib.util.spec_from_file_location("sandbox", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with open("/proc/self/statm") as file:
    hard = int(file.read().split()[0]) * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
sys.exit(module.main(**json.loads(sys.argv[2])))
"""


def test_a_hard_limit_of_memory_that_is_lower_than_ours_stays(good, tmp_path):
    order = {"source": str(good), "target": str(tmp_path / "copy.h5"), "budget": 320 << 20, "path": sys.path}
    order |= {"package": str(Path(sandbox.__file__).parents[1]), "trial": None}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, sandbox.__file__, json.dumps(order)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{}\n", b"")
    assert (tmp_path / "copy.h5").exists()


# Errors ---------------------------------------------------------------------------------------------------------------


def nested(depth):
    model = {"class_name": "Dense", "config": {"units": 2}}
    for number in range(depth):
        model = {"class_name": "Sequential", "config": {"name": f"s{number}", "layers": [model]}}
    return model


NONSENSE = {
    "300 models in each other": lambda model, _: model["config"]["layers"].append(nested(300)),
    "30 models in each other": lambda model, _: model["config"]["layers"].append(nested(30)),
    "900 levels": lambda model, _: dense(model).update(units=json.loads("[" * 900 + "]" * 900)),
    **{
        f"{name} {value}": lambda model, training, name=name, value=value: {
            "layers": model["config"],
            "class_name": model["config"]["layers"][1],
            "config": model,
            "arguments": model["config"]["layers"][1]["config"],
            "optimizer_config": training,
        }[name].update({name: value})
        for name in ("layers", "class_name", "config", "arguments", "optimizer_config")
        for value in ([], {}, 7, [[1]], {"class_name": []}, None)
    },
}


def test_every_error_of_a_file_is_a_value_error_or_os_error_that_names_it(forked, good):
    content = good.read_bytes()
    for what, change in NONSENSE.items():
        good.write_bytes(content)
        with pytest.raises((ValueError, OSError)) as raised:
            load_model_hdf5(spoil(good, change))
        assert str(good) in str(raised.value), what
        assert "Expected" in str(raised.value), what


def test_depth_is_measured_without_recursion():
    deep = json.loads("[" * 900 + "]" * 900)
    assert is_deeper_than(899, deep)
    assert not is_deeper_than(900, deep)
    assert is_deeper_than(1, {"a": {"b": 1}})


def archive(path, change):
    """A `.keras` file with one thing changed in the headers of its weights."""
    keras.Sequential([keras.Input((4,)), layers.Dense(3)]).save(path)
    with zipfile.ZipFile(path) as file:
        info = file.getinfo("model.weights.h5")
        directory = file.start_dir
    content = bytearray(path.read_bytes())
    central = content.index(b"model.weights.h5", directory) - 46
    change(content, info.header_offset, central)
    path.write_bytes(content)
    return path


def set_bytes(offset, value):
    def change(content, local, central):
        content[local + 4 + offset : local + 6 + offset] = value
        content[central + 6 + offset : central + 8 + offset] = value

    return change


def damage_data(content, local, _):
    content[local + 60 : local + 200] = bytes(140)


def cut(content, local, central):
    del content[local + 500 : central]


ARCHIVES = {
    "needs a later version": set_bytes(0, b"\xff\x00"),
    "encrypted": set_bytes(2, b"\x01\x00"),
    "compressed in an unknown way": set_bytes(4, b"\x63\x00"),
    "deflated, it says": set_bytes(4, b"\x08\x00"),
    "packed with LZMA, it says": set_bytes(4, b"\x0e\x00"),
    "packed with bzip2, it says": set_bytes(4, b"\x0c\x00"),
    "damaged": damage_data,
    "cut": cut,
}


@pytest.mark.parametrize("change", ARCHIVES.values(), ids=ARCHIVES)
def test_a_spoiled_archive_is_refused_by_name(change, tmp_path):
    path = archive(tmp_path / "m.keras", change)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    before = model.get_weights()
    with pytest.raises(UntrustedFileError, match="Expected") as raised:
        load_model_weights_hdf5(model, path)
    assert str(path) in str(raised.value)
    for now, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, old)


# Trust ----------------------------------------------------------------------------------------------------------------


def test_a_trusted_file_is_read_without_a_process_and_without_a_copy(good, tmp_path, monkeypatch):
    model = build_here(good)
    model.save_weights(tmp_path / "w.weights.h5")
    (tmp_path / "w.weights.h5").rename(tmp_path / "of any name")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr("shutil.copyfile", lambda *_, **__: pytest.fail("a copy was made"))
    again = load_model_hdf5(good, safe_mode=False)
    assert again.compiled
    for path in (good, tmp_path / "of any name"):
        load_model_weights_hdf5(model, path, safe_mode=False)
    with h5py.File(good) as file:
        saved = file["model_weights/dense/sequential/dense/kernel"][()]
    np.testing.assert_array_equal(again.layers[0].kernel, saved)
    clean_parallel_hdf5(good, tmp_path / "clean.h5", safe_mode=False)
    (tmp_path / "cut.h5").write_bytes(good.read_bytes()[:5000])
    with pytest.raises(UntrustedFileError, match="which cannot be read"):
        load_model_hdf5(tmp_path / "cut.h5", safe_mode=False)
