"""Whatever saves the parallel model writes the plain template, which stock Keras reads without this package."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from equality import ONE_CALL
from stock_keras import run_without_package

from multigpu import multi_gpu_model, save_model_hdf5, save_model_weights_hdf5

ROWS, FEATURES = 22, 6


@keras.saving.register_keras_serializable("tests")
class Scale(keras.layers.Layer):
    """A layer of somebody's own."""

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale


SCALE = """
@keras.saving.register_keras_serializable("tests")
class Scale(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")
    def call(self, x):
        return x * self.scale
"""


def plain() -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])


def frozen() -> keras.Model:
    model = plain()
    model.layers[0].trainable = False
    return model


def normalised() -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.BatchNormalization(), keras.layers.Dense(3)])


def two_outputs() -> keras.Model:
    x = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(8, "tanh")(x)
    return keras.Model(x, [keras.layers.Dense(3, name="left")(hidden), keras.layers.Dense(3, name="right")(hidden)])


def custom() -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,)), Scale(), keras.layers.Dense(3)])


def mixed_precision() -> keras.Model:
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    x = keras.Input((FEATURES,))
    return keras.Model(x, keras.layers.Dense(3, dtype="float32")(keras.layers.Dense(8, "tanh", dtype=policy)(x)))


MODELS = {build.__name__: build for build in (plain, frozen, normalised, two_outputs, custom, mixed_precision)}
WAYS = {
    "save.keras": lambda parallel, path: parallel.save(path),
    "save.h5": lambda parallel, path: parallel.save(path),
    "save_model.keras": lambda parallel, path: keras.saving.save_model(parallel, path),
    "hdf5.h5": save_model_hdf5,
    "checkpoint.keras": None,
    "save.weights.h5": lambda parallel, path: parallel.save_weights(path),
    "save_weights.weights.h5": lambda parallel, path: keras.saving.save_weights(parallel, path),
    "hdf5-weights.h5": save_model_weights_hdf5,
    "checkpoint.weights.h5": None,
    "best.weights.h5": None,
    "export": lambda parallel, path: parallel.export(path, verbose=False),
}


def data(model: keras.Model):
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(ROWS, size)).astype("float32") for size in (FEATURES, 3))
    return x, [y, y] if len(model.outputs) > 1 else y


def checkpoints(folder: Path) -> list[keras.callbacks.Callback]:
    checkpoint = keras.callbacks.ModelCheckpoint
    return [
        checkpoint(folder / "checkpoint.keras"),
        checkpoint(folder / "checkpoint.weights.h5", save_weights_only=True),
        checkpoint(folder / "best.weights.h5", save_weights_only=True, save_best_only=True, monitor="loss"),
    ]


def write_files(folder: Path, name: str, train: bool) -> None:
    """All files of one model, and what a reader has to find."""
    keras.utils.set_random_seed(1)
    template = MODELS[name]()
    folder.mkdir()
    (folder / "config.json").write_text(template.to_json())
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", auto_scale_loss=False)
    x, y = data(template)
    if train:
        losses = parallel.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=checkpoints(folder)).history["loss"]
        assert losses[1] < losses[0]  # so that the best is the last
    for way, write in WAYS.items():
        if write is not None:
            write(parallel, folder / way)
    outputs = keras.tree.flatten(template(x))
    np.savez(
        folder / "expected.npz",
        *[*template.get_weights(), *outputs, *parallel.optimizer.variables],
        num_weights=len(template.weights),
        num_outputs=len(outputs),
    )


READ = (
    SCALE
    + f"""
import tensorflow as tf
random = np.random.default_rng(0)
x, y = (random.normal(size=({ROWS}, size)).astype("float32") for size in ({FEATURES}, 3))
answer = {{}}
"""
    + """
def same(actual, expected):
    return len(actual) == len(expected) and all(np.array_equal(a, e) for a, e in zip(actual, expected))

def read(folder, way, expected):
    weights, outputs, optimizer = expected
    path = os.path.join(folder, way)
    if way == "export":  # traced, as what it is compared with: a processor may fuse what runs op by op otherwise
        layer = keras.layers.TFSMLayer(path, call_endpoint="serving_default")
        stock = keras.saving.load_model(os.path.join(folder, "save.keras"))
        traced = tf.function(stock, input_signature=[tf.TensorSpec((None, x.shape[1]))])
        got, wanted = (keras.tree.flatten(model(x)) for model in (layer, traced))
        return all(any(np.allclose(g, w, atol=1e-6) for g in got) for w in wanted)  # names differ, order may
    whole = "weights" not in way
    if whole:
        model = keras.saving.load_model(path)
    else:
        model = keras.models.model_from_json(open(os.path.join(folder, "config.json")).read())
        model.load_weights(path)
    found = [same(model.get_weights(), weights), same([np.array(o) for o in keras.tree.flatten(model(x))], outputs)]
    if whole:
        found += [model.compiled, model.loss == "mse" or way.endswith(".h5"), type(model.optimizer).__name__ == "Adam"]
    if whole and way.endswith(".keras"):
        if "trained" in folder:
            found.append(same(model.optimizer.variables, optimizer))
        before = model.get_weights()
        model.train_on_batch(x, [y] * len(outputs) if len(outputs) > 1 else y)
        found += [not same(model.get_weights(), before), model.optimizer.iterations == optimizer[0] + 1]
    return found if not all(found) else True

for folder in sorted(entry for entry in os.listdir() if os.path.isdir(entry)):
    with np.load(os.path.join(folder, "expected.npz")) as file:
        arrays = [file[f"arr_{index}"] for index in range(len(file.files) - 2)]
        first, last = int(file["num_weights"]), int(file["num_weights"] + file["num_outputs"])
    expected = arrays[:first], arrays[first:last], arrays[last:]
    ways = sorted({*os.listdir(folder)} - {"expected.npz", "config.json"})
    warnings.simplefilter("ignore" if "fresh" in folder else "error")  # Keras warns of an optimizer without state
    for way in ways:
        found = read(folder, way, expected)
        answer[f"{folder} {way}"] = "as it was" if found is True or found is np.True_ else str(found)
"""
)


def test_stock_keras_reads_the_template_back_from_every_way_of_saving(tmp_path):
    """One process reads all: it takes longer to start than to read."""
    for name in MODELS:
        write_files(tmp_path / f"trained-{name}", name, train=True)
    write_files(tmp_path / "fresh-plain", "plain", train=False)
    found = run_without_package(READ, tmp_path)
    without_training = [way for way, write in WAYS.items() if write is not None]
    files = [f"trained-{name} {way}" for name in MODELS for way in WAYS]
    files += [f"fresh-plain {way}" for way in without_training]
    assert found == dict.fromkeys(files, "as it was")


@pytest.mark.quick
def test_the_config_of_the_parallel_model_is_the_templates():
    template = plain()
    parallel = multi_gpu_model(template, gpus=2)
    assert parallel.get_config() == template.get_config()
    assert parallel.to_json() == template.to_json()
    assert json.loads(parallel.to_json())["class_name"] == "Sequential"


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_clone_of_the_parallel_model_is_one_of_the_template(build):
    template = build()
    template.compile(optimizer="adam", loss="mse")
    parallel = multi_gpu_model(template, gpus=2)
    expected, clone = keras.models.clone_model(template), keras.models.clone_model(parallel)
    assert type(clone) is type(expected) is type(template)
    assert clone.compiled
    assert clone.input_shape == expected.input_shape
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in expected.weights]
    assert not {id(weight) for weight in clone.weights} & {id(weight) for weight in template.weights}
    assert json.loads(clone.to_json())["class_name"] == json.loads(expected.to_json())["class_name"]


def test_to_python_the_parallel_model_is_of_the_templates_class_and_of_its_own():
    """Keras saves and clones by `obj.__class__` and `dir()`; this fails when it goes by something else."""
    parallel = multi_gpu_model(plain(), gpus=2)
    assert isinstance(parallel, keras.Sequential)
    assert parallel.__class__ is keras.Sequential
    assert type(parallel).__name__ == "ParallelModel"
    assert isinstance(parallel, type(parallel))
    assert dir(parallel) == dir(parallel.template)


def test_a_model_with_a_parallel_model_inside_is_saved_with_the_template_inside(tmp_path):
    inner = plain()
    x = keras.Input((FEATURES,))
    outer = keras.Model(x, keras.layers.Dense(1)(multi_gpu_model(inner, gpus=2)(x)))
    outer.save(tmp_path / "outer.keras")
    again = keras.saving.load_model(tmp_path / "outer.keras")
    rows = np.ones((5, FEATURES), "float32")
    expected = outer.predict(rows, verbose=0)  # traced, as the inner model is in any case
    np.testing.assert_allclose(again.predict(rows, verbose=0), expected, **ONE_CALL)
    assert type(again.layers[1]) is keras.Sequential
