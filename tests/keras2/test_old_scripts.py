"""Scripts in the style of 2017 to 2019 run as they are, under `python -m multigpu run`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import soak
from forked_python import python
from stock_keras import run_without_package

SCRIPTS = Path(__file__).parent / "scripts"
LOADED = "model = keras.models.load_model({path!r}); answer = [type(model).__name__, model.count_params(), {more}]"


def run(folder, *words, code=0, anew=False):
    """What a script prints, run from a folder on a machine whose GPUs are hidden."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [*([sys.executable] if anew else python()), "-m", "multigpu", "run", *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == code, done.stderr[-5000:]
    return done.stdout.splitlines()


@pytest.mark.soak  # the same model is that of the help page in R, which `make test-docs` runs
def test_the_example_of_the_documentation_runs_and_saves_a_plain_file(tmp_path):
    lines = run(tmp_path, "--simulate", 2, SCRIPTS / "xception.py", anew=True)
    assert any("loss: " in line for line in lines)
    loaded = LOADED.format(path="my_model.h5", more="type(model.optimizer).__name__")
    assert run_without_package(loaded, tmp_path) == ["Functional", 20_881_970, "RMSprop"]


@pytest.mark.parametrize("gpus", [soak(1), 2])
def test_the_tutorial_for_one_gpu_or_several_runs_on_both(gpus, tmp_path):
    lines = run(tmp_path, "--simulate", 2, SCRIPTS / "vgg19.py", "--output", "plot.png", "-g", gpus)
    assert lines[0] == f"[INFO] training with {gpus} GPU{'s' if gpus > 1 else ''}..."
    assert lines[-1] == "[INFO] lr ['0.010', '0.005'] epochs 2"
    saved = [path.name for path in tmp_path.glob("weights.02-*.hdf5")]
    assert len(saved) == 1  # `period=2`
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["plot.png", *saved])


def test_a_script_falls_back_to_one_device_on_a_value_error_and_keeps_its_exit_code(tmp_path):
    lines = run(tmp_path, SCRIPTS / "fallback.py", code=3)
    assert lines == [
        "Training using single GPU or CPU..",
        "['acc', 'accuracy', 'loss', 'val_acc', 'val_accuracy', 'val_loss']",
        "['loss', 'acc'] 85",
        "lr 0.010",
        "2 (16, 1)",
    ]


def test_the_same_script_spreads_the_model_where_there_are_devices(tmp_path):
    assert run(tmp_path, "--simulate", 2, SCRIPTS / "fallback.py", code=3)[0] == "Training using multiple GPUs.."


def test_tf_keras_and_the_class_that_saves_the_template_work(tmp_path):
    lines = run(tmp_path, "--simulate", 2, SCRIPTS / "mgpu.py")
    assert lines[0] == "2 GPUs; True"
    assert lines[-2:] == ["True", "lr ['0.100', '0.050']"]
    assert not any("acc: " in line.replace("accuracy: ", "") for line in lines)  # the progress bar shows one name


def test_scripts_that_look_for_devices_and_models_in_the_paths_of_the_time_run(tmp_path):
    assert run(tmp_path, "--simulate", 3, SCRIPTS / "devices.py") == [
        "['/cpu:0', '/gpu:0', '/gpu:1', '/gpu:2']",
        "1 (20, 2)",
        "True",
        "refused 4 refused 1 refused 0 refused [] refused [0] refused [0, 2, 4]",
        "True",
    ]


def test_the_template_is_a_layer_of_the_parallel_model_and_an_embedding_may_come_first(tmp_path):
    assert run(tmp_path, "--simulate", 3, SCRIPTS / "imdb.py") == [
        "(None, None) (None, 5, 1)",
        "True True True",
        "answer True",
        "Sequential True",
        "3",
    ]


def test_models_share_an_optimizer_and_values_come_by_the_names_of_outputs(tmp_path):
    of_b = ["b_loss", "b_mae", "b_mean_absolute_error"]
    logs = [
        ["a_loss", "a_mae", "a_mean_absolute_error", *of_b, "loss"],
        ["a_f1", "loss", "val_a_f1", "val_loss"],
        ["a_f1", "a_loss", *of_b, "loss", "val_a_f1", "val_a_loss", *(f"val_{name}" for name in of_b), "val_loss"],
    ]
    assert run(tmp_path, "--simulate", 3, SCRIPTS / "gan.py") == [
        "True True True [True, False, 0.1]",
        f"True True True {logs}",
        "True True True ['loss', 'mae']",
        "(14, 8) [(None, 16), (None, 8), (None, 1)] (None, 16)",
        "True True (None, 1)",
    ]


NAMES = """
import json, sys
import keras, tensorflow as tf
def state():
    modules = [keras, keras.utils, keras.layers, keras.callbacks, keras.backend, keras.models, keras.optimizers, tf]
    classes = [keras.Model, keras.optimizers.SGD, keras.callbacks.CallbackList, keras.callbacks.Callback]
    return [{name: id(thing) for name, thing in vars(each).items()} for each in modules + classes]
before, names = state(), {name for name in sys.modules if name.startswith("keras.")}
import multigpu
answer = {"untouched": before == state() and names == {name for name in sys.modules if name.startswith("keras.")}}
multigpu.simulate_gpus(2)
multigpu.restore_old_names()
changed = state()
from multigpu.engines.tensorflow.private_api.runtime import devices_are_fixed
answer["started"] = devices_are_fixed()
multigpu.restore_old_names()
answer["twice"] = changed == state()
"""


def in_fresh_process(script, folder):
    """What a script leaves in `answer`."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*python(), "-c", f"{NAMES}{script}\nprint(json.dumps(answer))"],
        cwd=folder, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


IMPORTS = [
    *("keras.utils.multi_gpu_model", "keras.utils.training_utils.multi_gpu_model"),
    *("keras.utils.multi_gpu_utils.multi_gpu_model", "tensorflow.keras.utils.multi_gpu_model"),
    *("tensorflow.python.keras.utils.multi_gpu_model", "tensorflow.compat.v1.keras.utils.multi_gpu_model"),
    "tensorflow.compat.v2.keras.utils.multi_gpu_model",
    *("keras.utils.multi_gpu_utils._get_available_devices", "keras.utils.training_utils._normalize_device_name"),
    "tensorflow.python.keras.utils.multi_gpu_utils._normalize_device_name",
    *("keras.layers.core.Dense", "keras.layers.convolutional.Conv2D", "keras.layers.pooling.MaxPooling2D"),
    *("keras.layers.recurrent.LSTM", "keras.layers.embeddings.Embedding", "keras.layers.merge.concatenate"),
    *("keras.layers.normalization.BatchNormalization", "keras.layers.advanced_activations.PReLU"),
    *("keras.layers.wrappers.TimeDistributed", "keras.layers.noise.GaussianNoise", "keras.layers.CuDNNLSTM"),
    *("keras.engine.Layer", "keras.engine.topology.InputSpec", "keras.engine.training.Model", "keras.models.Input"),
    *("keras.objectives.mean_squared_error", "keras.optimizers.adam", "keras.utils.Sequence"),
    *("keras.utils.np_utils.to_categorical", "keras.utils.generic_utils.Progbar", "keras.utils.vis_utils.plot_model"),
    *("keras.utils.test_utils.keras_test", "keras.utils.test_utils.layer_test"),
    *("keras.utils.data_utils.get_file", "keras.preprocessing.image.ImageDataGenerator"),
    *("keras.preprocessing.text.Tokenizer", "keras.preprocessing.sequence.pad_sequences"),
    *("keras.backend.tensorflow_backend.set_session", "keras.backend.get_session", "keras.backend.int_shape"),
    *("tensorflow.keras.layers.Dense", "tensorflow.python.keras.layers.Dense", "tensorflow.python.keras.Model"),
    *("tensorflow.Session", "tensorflow.ConfigProto", "tensorflow.GPUOptions", "tensorflow.set_random_seed"),
]

OLD = "tensorflow.python.keras."
REVIVED = {  # paths into what TensorFlow has left of Keras 2 → the same thing today
    f"{OLD}optimizer_v2.adam.Adam": "keras.optimizers.Adam",
    f"{OLD}optimizer_v2.gradient_descent.SGD": "keras.optimizers.SGD",
    f"{OLD}optimizer_v2.learning_rate_schedule.ExponentialDecay": "keras.optimizers.schedules.ExponentialDecay",
    f"{OLD}optimizer_v1.SGD": "keras.optimizers.SGD",
    f"{OLD}callbacks_v1.TensorBoard": "keras.callbacks.TensorBoard",
    f"{OLD}backend_config.set_floatx": "tensorflow.keras.backend.set_floatx",
    f"{OLD}mixed_precision.policy.Policy": "keras.mixed_precision.Policy",
    f"{OLD}engine.functional.Model": "keras.Model",
    f"{OLD}engine.base_layer.Layer": "keras.layers.Layer",
    f"{OLD}saving.save.load_model": "keras.models.load_model",
    f"{OLD}layers.core.Dense": "keras.layers.Dense",
    f"{OLD}models.Sequential": "keras.Sequential",
    f"{OLD}utils.np_utils.to_categorical": "keras.utils.to_categorical",
}
INTERNAL = ["distribute", "legacy_tf_layers", "protobuf"]  # TensorFlow's own: nobody builds Keras models of these

TABLE = """
import importlib, warnings
import numpy as np
def find(path):
    module, name = path.rsplit(".", 1)
    scope = {}
    try:
        exec(f"from {module} import {name}", scope)
        return scope[name]
    except ImportError as error:
        return None
answer["missing"] = [path for path in IMPORTS if find(path) is None]
def dead():
    import pkgutil
    for module in pkgutil.walk_packages(root.__path__, "tensorflow.python.keras."):
        if module.name.split(".")[3] in INTERNAL:
            continue
        try:
            found = importlib.import_module(module.name)
        except ImportError:
            continue
        for name, thing in vars(found).items():
            if str(getattr(thing, "__module__", "")).startswith("tensorflow.python.keras"):
                yield f"{module.name}.{name}"
root = importlib.import_module("tensorflow.python.keras")
classes = [getattr(root, name) is getattr(keras, name) for name in ("Input", "Model", "Sequential")]
answer["dead"] = [classes, sorted(dead())]
answer["revived"] = [path for path in REVIVED if find(path) is not find(REVIVED[path])]
answer["same"] = find("keras.layers.core.Dense") is find("tensorflow.python.keras.layers.Dense") is keras.layers.Dense
scope = {}
exec("from keras.layers.core import *; from keras.optimizers import *; from keras.callbacks import *", scope)
answer["star"] = [name for name in ("Dense", "Adam", "ModelCheckpoint") if name not in scope]
def told(work):
    try:
        work()
    except NotImplementedError as error:
        return str(error)
graphs = [tf.get_default_graph(), find("keras.backend.get_session")().graph]
for graph in graphs:  # as servers did, in each thread
    with graph.as_default():
        answer["graphs"] = [*answer.get("graphs", []), tf.executing_eagerly()]
    graph.finalize()
    assert graph.get_operations() == [] and graph is tf.get_default_graph()
answer["gone"] = [told(lambda: find("keras.models.model_from_yaml")("")), told(lambda: tf.Session().run(1)),
                  told(lambda: find("keras.wrappers.scikit_learn.KerasClassifier")(lambda: 0))]
def trained(rate):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(**rate), "mse")
    model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, epochs=2, verbose=0)
    return model.get_weights()[0].tolist()
schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 0.5)
answer["decay"] = [trained({"lr": 0.1, "decay": 0.5}), trained({"learning_rate": schedule}), trained({"lr": 0.1})]
def argument(work):
    try:
        work()
    except TypeError as error:
        return str(error)
answer["arguments"] = [argument(lambda: keras.layers.Conv2D(3, 3, border_mode="same")),
                       argument(lambda: keras.layers.Dense(output_dim=3)),
                       argument(lambda: keras.layers.Dense(3, batch_input_shape=(2, 3)))]
set_order, get_order = (find(f"keras.backend.{name}") for name in ("set_image_dim_ordering", "image_dim_ordering"))
set_order("th")
answer["order"] = [get_order(), keras.config.image_data_format()]
set_order("tf")
answer["order"] += [get_order(), keras.config.image_data_format()]
checkpoint = keras.callbacks.ModelCheckpoint("weights.h5")
answer["checkpoint"] = [checkpoint.save_best_only, checkpoint.period, checkpoint.verbose]
code = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x)])
answer["code"] = []
for name in ("code.h5", "code.keras"):
    code.save(name)
    try:
        keras.models.load_model(name)
    except ValueError as error:
        answer["code"].append(name)
optimizer = keras.optimizers.Adam(lr=1, epsilon=None)
optimizer.lr = 0.5
answer["rates"] = [float(optimizer.learning_rate), float(keras.optimizers.Adadelta().lr)]
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", ["mae"], sample_weight_mode=None)
model.save("model.keras")
try:
    model.save("model", save_format="tf")
except ValueError as error:
    answer["format"] = str(error)
try:
    model.compile("sgd", "mse", target_tensors=[tf.ones((8, 1))])
except NotImplementedError as error:
    answer["targets"] = str(error)
model.compile("sgd", "mse", target_tensors=None)
@find("keras.utils.test_utils.keras_test")
def first_name(fails):
    name = keras.layers.Dense(1).name
    return name if not fails else 1 / 0
try:
    first_name(fails=True)
except ZeroDivisionError:
    answer["tidy"] = [first_name(fails=False), first_name(fails=False), first_name.__name__]
answer["loaded"] = keras.models.load_model("model.keras").compiled
answer["cloned"] = keras.models.clone_model(model).compiled
def frozen_after(compiled):
    layer = keras.layers.Dense(1)
    model = multigpu.multi_gpu_model(keras.Sequential([keras.Input((3,)), layer]), gpus=2)
    before = layer.get_weights()[0].tolist()
    layer.trainable = compiled
    model.compile("sgd", "mse")
    layer.trainable = not compiled
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 1)))
    return layer.get_weights()[0].tolist() != before, layer.trainable
answer["frozen"] = [frozen_after(True), frozen_after(False)]
sgd = keras.optimizers.SGD(0.1, 0.9, 1e-6, True)
answer["positions"] = [float(sgd.lr), sgd.momentum, sgd.nesterov]
inputs = keras.Input((3,))
double = keras.backend.function([inputs], [2 * inputs])
answer["function"] = double([np.ones((1, 3))])[0].tolist()
from multigpu.keras2.log_names import with_old_names
logs = ["accuracy", "val_main_acc", "val_sparse_categorical_accuracy", "mse", "val_loss"]
answer["epochs"] = list(with_old_names(dict.fromkeys(logs, 0)))
def endless():
    while True:
        yield np.ones((4, 3)), np.ones((4, 1))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit_generator(endless(), steps_per_epoch=2, verbose=0)
    model.fit(endless(), steps_per_epoch=2, shuffle=True, verbose=0)
answer["generators"] = [str(each.message) for each in caught]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tf.compat.v1.disable_eager_execution()
answer["ignored"] = [str(each.message) for each in caught]
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    return in_fresh_process(f"{IMPORTS = }\n{REVIVED = }\n{INTERNAL = }\n{TABLE}", tmp_path_factory.mktemp("old"))


def test_importing_the_package_changes_nothing_and_restoring_twice_no_more_than_once(answer):
    assert answer["untouched"]
    assert answer["twice"]
    assert not answer["started"]  # a script may still set CUDA_VISIBLE_DEVICES


def test_old_names_are_there_after_one_call(answer):
    assert answer["missing"] == []
    assert answer["same"]
    assert answer["star"] == []
    assert answer["function"] == [[2, 2, 2]]


def test_nothing_is_left_of_the_keras_that_tensorflow_has_inside(answer):
    assert answer["dead"] == [[True, True, True], []]
    assert answer["revived"] == []


def test_the_default_graph_of_a_script_is_none(answer):
    assert answer["graphs"] == [True, True]


def test_names_without_a_successor_say_what_to_use_instead(answer):
    assert answer["gone"] == [
        "Expected a name of Keras 3. Received: `keras.models.model_from_yaml`, which Keras 3 does not have. "
        "Use `model.to_json()` and `keras.models.model_from_json()`.",
        "Expected code that runs eagerly. Received: `Session.run()`, which ran graphs of TensorFlow 1. Leave out "
        "initializers of variables, and call models, layers and functions with tensors instead.",
        "Expected a name of Keras 3. Received: `keras.wrappers.scikit_learn.KerasClassifier`, which Keras 3 "
        "does not have. Use `keras.wrappers.SKLearnClassifier`.",
    ]
    assert answer["ignored"] == ["`disable_eager_execution()` is ignored: Keras 3 has no graph mode of TensorFlow 1."]


@pytest.mark.quick
def test_arguments_of_keras_1_say_what_they_are_now(answer):
    assert answer["arguments"] == [
        "Expected arguments of Keras 2 or later for `Conv2D`. Received: `border_mode`. Use `padding`.",
        "Expected arguments of Keras 2 or later for `Dense`. Received: `output_dim`. Use `units`.",
        "Expected arguments of Keras 2 or later for `Dense`. Received: `batch_input_shape`. Use a "
        "`keras.Input(batch_shape=...)` before it.",
    ]


def test_the_order_of_images_is_set_in_the_words_of_keras_1(answer):
    assert answer["order"] == ["th", "channels_first", "tf", "channels_last"]


def test_a_checkpoint_keeps_every_epoch_unless_told_otherwise(answer):
    assert answer["checkpoint"] == [False, 1, 0]


def test_files_with_code_are_refused_unless_they_are_trusted(answer):
    assert answer["code"] == ["code.h5", "code.keras"]


def test_shuffling_of_what_cannot_be_shuffled_is_ignored_in_silence_as_it_was(answer):
    assert answer["generators"] == []


def test_decay_lowers_the_rate_as_it_did(answer):
    with_decay, by_schedule, constant = answer["decay"]
    np.testing.assert_allclose(with_decay, by_schedule, rtol=1e-6)  # one rounding more
    assert abs(with_decay[0][0] - constant[0][0]) > 1e-3


def test_optimizers_have_the_rates_of_keras_2(answer):
    assert answer["rates"] == [0.5, 1.0]
    assert answer["positions"] == [pytest.approx(0.1), 0.9, True]


def test_files_of_keras_3_are_loaded_compiled_as_before(answer):
    assert answer["loaded"]


def test_clones_of_compiled_models_are_compiled_as_before(answer):
    assert answer["cloned"]


def test_a_format_that_ended_with_keras_2_is_refused(answer):
    assert answer["format"] == (
        "Expected `save_format` to be 'h5'. Received: 'tf', which Keras 3 does not have. Use `model.export(path)` for "
        "a SavedModel."
    )


def test_targets_that_are_tensors_are_refused_when_a_model_is_compiled(answer):
    assert answer["targets"] == (
        "Expected the targets in `fit()`. Received: `target_tensors` of `compile()`, which Keras 3 "
        "does not have. Use `model.fit(x, y)`, or a `tf.data.Dataset` of both."
    )


def test_tests_of_the_time_leave_no_names_of_layers_behind(answer):
    assert answer["tidy"] == ["dense", "dense", "first_name"]


def test_what_is_trained_is_settled_when_a_model_is_compiled(answer):
    assert answer["frozen"] == [[True, False], [False, True]]


@pytest.mark.quick
def test_epochs_are_told_under_both_names(answer):
    assert answer["epochs"] == [
        "acc",
        "val_main_accuracy",
        "val_sparse_categorical_accuracy",
        "mean_squared_error",
        "val_loss",
    ]
