"""`estimate` and `measure`: tables of the functions, JSON, statuses, and random rows for a file without data."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import warnings
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import multigpu
from multigpu.base.table import PAGE_WIDTH, megabytes
from multigpu.cli import answers, estimate
from multigpu.cli.argument_types import devices, size
from multigpu.cli.main import main
from multigpu.cli.random_data import random_batch
from multigpu.profiling import measure as measuring
from multigpu.profiling.measurement import Measurement


class Unknown(keras.Layer):
    """A layer that no command line knows."""

    def call(self, x):
        return x


def small(compiled=True, *more):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), *more, layers.Dense(2)], name="small")
    if compiled:
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)  # of a file without its state, Keras warns
    return model


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with models, and with what is none."""
    folder = tmp_path_factory.mktemp("models")
    small().save(folder / "small.keras")
    small(False).save(folder / "uncompiled.keras")
    small(True, Unknown()).save(folder / "own.keras")
    small(True, layers.Lambda(lambda x: x * 2)).save(folder / "lambda.keras")
    multigpu.save_model_hdf5(small(), folder / "small.h5")
    (folder / "text.keras").write_text("no archive")
    with zipfile.ZipFile(folder / "other.keras", "w") as archive:
        archive.writestr("something", "else")
    return folder


def answer(capsys, *words):
    """The status of a command, and what it prints on stdout."""
    status = main(list(map(str, words)))
    return status, capsys.readouterr().out


def refusal(capsys, *words):
    """The line in which a command is refused."""
    with pytest.raises(SystemExit) as error:
        main(list(map(str, words)))
    out, err = capsys.readouterr()
    assert (error.value.code, out) == (2, "")
    line = err.splitlines()[-1]
    assert line.startswith(f"python -m multigpu {words[0]}: error: ")
    return line.split("error: ", 1)[1]


# Estimate -------------------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_an_estimate_is_the_table_of_the_function(files, capsys):
    expected = multigpu.estimate(keras.models.load_model(files / "small.keras"), 2, 64)
    words = ["estimate", files / "small.keras", "--gpus", 2, "--batch-size", 64]
    assert answer(capsys, *words) == (0, f"{expected}\n")
    assert answer(capsys, *words, "--layers") == (0, f"{expected}\n\n{expected.layers}\n")


def test_its_options_are_the_arguments_of_the_function_and_json_has_all_fields(files, capsys):
    model = keras.models.load_model(files / "small.keras")
    expected = multigpu.estimate(model, ["CPU:1", "CPU:3"], 10, "sgd", cpu_merge=False, cpu_relocation=True)
    options = ["--gpus", "1,CPU:3", "--batch-size", 10, "--optimizer", "sgd", "--no-cpu-merge", "--cpu-relocation"]
    status, out = answer(capsys, "estimate", files / "small.keras", *options, "--layers", "--json")
    assert status == 0
    assert json.loads(out) == {
        "model": str(files / "small.keras"),
        "batch_size": 10,
        "parameters": expected.parameters,
        "weights": expected.weights,
        "optimizer": expected.optimizer,
        "devices": [dataclasses.asdict(row) for row in expected],
        "layers": [dataclasses.asdict(row) for row in expected.layers],
        "fits": None,
    }


def test_without_gpus_it_takes_those_of_the_machine_and_the_optimizer_of_the_file(files, capsys):
    _, out = answer(capsys, "estimate", files / "small.h5", "--trusted", "--json")
    told = json.loads(out)
    assert [row["device"] for row in told["devices"]] == multigpu.available_gpus()
    assert told["optimizer"] == 2 * told["weights"]  # adam
    assert told["layers"] is None


def test_the_status_says_whether_a_model_fits(files, capsys):
    words = ["estimate", files / "small.keras", "--gpus", 2, "--fits"]
    most = max(row.total for row in multigpu.estimate(small(), 2))
    status, out = answer(capsys, *words, f"{most}")
    assert (status, out.splitlines()[-1]) == (
        0,
        f"It fits: a device needs up to {megabytes(most)}, of {megabytes(most)}.",
    )
    status, out = answer(capsys, *words, f"{most - 1}B")
    assert status == 1
    assert out.splitlines()[-1] == (
        f"It does not fit: CPU:0 would need up to {megabytes(most)}, and have {megabytes(most - 1)}."
    )
    for memory, fits in ((most, True), (most - 1, False)):
        status, out = answer(capsys, *words, memory, "--json")
        assert (status, json.loads(out)["fits"]) == (0 if fits else 1, fits)


def test_the_memory_of_the_host_is_not_that_of_a_gpu(files, capsys):
    words = ["estimate", files / "small.keras", "--gpus", "1,2", "--optimizer", "adam", "--cpu-relocation", "--json"]
    host = max(json.loads(answer(capsys, *words)[1])["devices"], key=lambda row: row["optimizer"])
    assert (host["device"], host["slices"]) == ("CPU:0", 0)
    at_work = [row.total for row in multigpu.estimate(small(), [1, 2], cpu_relocation=True) if row.slices]
    assert answer(capsys, *words, "--fits", max(at_work))[0] == 0


def test_what_cannot_be_told_is_no_answer():
    table = multigpu.estimate(small(), 2)
    unknown = type(table)(dataclasses.replace(row, activations=None) for row in table)
    unknown.template = table.template
    assert estimate._full(unknown, 10) == ["CPU:0", "CPU:1"]  # too much without them
    with pytest.raises(ValueError, match=r"Received: 'small', whose input shapes are unknown\. Leave `--fits` out\."):
        estimate._full(unknown, 10**9)


def test_gpus_of_the_machine_are_left_alone(files, capsys, monkeypatch):
    hidden = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["one"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: hidden.append((devices, kind)))
    monkeypatch.setattr("multigpu.engines.tensorflow.devices.gpu_table.devices_are_fixed", lambda: False)
    assert estimate._gpus(None) == multigpu.available_gpus()
    assert estimate._gpus([0, 2]) == [0, 2]
    assert hidden == [([], "GPU")] * 2
    monkeypatch.setattr("multigpu.model.devices.available_gpus", lambda: [])
    assert refusal(capsys, "estimate", files / "small.keras") == (
        "Expected `--gpus`, such as `--gpus 8`. The machine does not need to have them. Received: none, on a "
        "machine where Keras "
        "finds no GPU."
    )


def test_gpus_are_a_number_ids_or_names():
    assert devices("8") == 8
    assert devices("0,2") == [0, 2]
    assert devices("GPU:0,/gpu:1,3") == ["GPU:0", "/gpu:1", 3]


@pytest.mark.parametrize(
    ("word", "number"),
    [("24GB", 24 * 10**9), ("22.5GiB", 22.5 * 2**30), ("1 tb", 10**12), ("8B", 8), ("1000", 1000), ("0.1kB", 100)],
)
def test_sizes_are_in_decimal_and_binary_units(word, number):
    assert size(word) == number


def test_a_terminal_gets_lines_that_it_can_show(capsys, monkeypatch):
    table = multigpu.estimate(small(), 2)
    monkeypatch.setenv("COLUMNS", "80")
    answers.print_table(table)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.split() == [*table.text(80).split()]
    assert sorted(set(out.split())) == sorted(set(str(table).split()))


def test_where_there_is_no_terminal_lines_are_as_wide_as_a_page(capsys, monkeypatch):
    table = multigpu.estimate(small(), 2)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)
    answers.print_table(table)
    assert capsys.readouterr().out == f"{table}\n"
    assert max(map(len, str(table).splitlines())) <= PAGE_WIDTH


def test_stdout_has_json_and_nothing_else(files):
    command = f"{sys.executable} -m multigpu estimate small.keras --gpus 2 --json | {sys.executable} -m json.tool"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(command, shell=True, cwd=files, capture_output=True, text=True, check=True, env=environment)
    assert [row["device"] for row in json.loads(done.stdout)["devices"]] == ["GPU:0", "GPU:1"]


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["estimate", "measure"])
@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("text.keras", "which is not a zip archive. It is of another kind, or damaged: use another copy."),
        ("other.keras", "for which Keras raises: \"There is no item named 'config.json' in the archive\"."),
        (
            "own.keras",
            "for which Keras raises: Could not locate class 'Unknown'. Classes and functions of your own are out of "
            "reach here: load the model in Python, `multigpu.{command}()`.",
        ),
        ("lambda.keras", "whose `function` is a Python lambda. If you trust the file, add `--trusted`."),
    ],
)
def test_a_file_that_is_refused_is_named_in_one_line(command, file, told, files, capsys):
    line = refusal(capsys, command, files / file, "--gpus", 2)
    assert line.startswith("Expected a model that ")
    assert repr(str(files / file)) in line
    assert line.endswith(told.format(command=command))


def test_code_in_a_file_that_is_trusted_is_loaded(files, capsys):
    assert answer(capsys, "estimate", files / "lambda.keras", "--gpus", 2, "--trusted")[0] == 0


def test_an_argument_of_the_function_is_refused_in_one_line(files, capsys):
    line = refusal(capsys, "estimate", files / "small.keras", "--gpus", 2, "--optimizer", "fast")
    assert line.startswith(
        "Expected `--optimizer` to be an optimizer of Keras, or the name of one. Received: --optimizer fast."
    )
    line = refusal(capsys, "estimate", files / "small.keras", "--gpus", "0,GPX:1:2")
    assert line.startswith("Expected `--gpus` to be a whole number of GPUs, or a list of GPU ids or device names.")


@pytest.mark.parametrize(
    ("error", "told", "traced"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "no memory\nleft"), "no memory left", False),
        (MemoryError(), "MemoryError", False),
        (ModuleNotFoundError("No module named 'h5py'"), "No module named 'h5py'", False),
        (KeyError("a defect"), "'a defect'", True),
        (ValueError("x" * 5000), "x" * 1000 + "…", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_no_error_has_the_status_of_an_answer(error, told, traced, files, capsys, monkeypatch):
    def fail(*args):
        raise error

    monkeypatch.setattr("multigpu.profiling.estimate.estimate", fail)
    with pytest.raises(SystemExit) as ended:
        main(["estimate", str(files / "small.keras"), "--gpus", "2", "--fits", "1GB"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == f"python -m multigpu estimate: error: {told}"
    assert ("Traceback" in err) == traced


# Measure --------------------------------------------------------------------------------------------------------------

MEASURED = Measurement(("CPU:0", "CPU:1"), 6, "CPU:0", 0.3, 0.2, 0.1, 0.0, 1.5, 0.5, 0.5, 0.0, "It pays.")


@pytest.fixture
def measured(monkeypatch):
    """Calls of `measure()`, which takes no steps."""
    calls = []

    def note(parallel, x, **options):
        calls.append((parallel, x, options))
        return MEASURED

    monkeypatch.setattr(measuring, "measure", note)
    return calls


def test_real_steps_are_measured_and_the_file_is_left_as_it_is(files, capsys):
    before = (files / "small.keras").read_bytes()
    words = ["measure", files / "small.keras", "--gpus", 2, "--batch-size", 6, "--steps", 1]
    status, out = answer(capsys, *words, "--json")
    told = json.loads(out)
    assert status == 0
    assert list(told) == ["model", *(field.name for field in dataclasses.fields(Measurement)), "enough"]
    assert (told["devices"], told["batch_size"], told["enough"]) == (["CPU:0", "CPU:1"], 6, None)
    assert told["speed_up"] == told["one_device"] / told["all_devices"] > 0
    assert told["input"] < 0.05 * told["all_devices"]  # a batch that is at hand
    assert (files / "small.keras").read_bytes() == before


def test_the_status_says_whether_it_is_fast_enough(files, capsys, measured):
    words = ["measure", files / "small.keras", "--gpus", 2, "--batch-size", 6]
    assert answer(capsys, *words) == (0, f"{MEASURED}\n")
    assert answer(capsys, *words, "--at-least", "1.5") == (0, f"{MEASURED}\n")
    assert answer(capsys, *words, "--at-least", "1.51") == (1, f"{MEASURED}\n")
    assert json.loads(answer(capsys, *words, "--at-least", "1.51", "--json")[1])["enough"] is False


def test_it_is_measured_as_the_file_was_compiled_or_as_is_said(files, capsys, measured):
    answer(capsys, "measure", files / "small.keras", "--gpus", "1,2", "--no-cpu-merge", "--steps", 3)
    answer(capsys, "measure", files / "small.keras", "--gpus", 2, "--loss", "mae", "--cpu-relocation")
    answer(capsys, "measure", files / "uncompiled.keras", "--gpus", 2, "--optimizer", "sgd", "--loss", "poisson")
    (first, _, options), (second, _, _), (third, _, _) = measured
    assert (type(first.optimizer), first.template.loss, options["steps"]) == (keras.optimizers.Adam, "mse", 3)
    assert (first.plan.devices, first.plan.merge_device) == (("CPU:1", "CPU:2"), "CPU:1")
    assert (type(second.optimizer), second.template.loss) == (keras.optimizers.Adam, "mae")
    assert second.plan.cpu_relocation
    assert (type(third.optimizer), third.template.loss) == (keras.optimizers.SGD, "poisson")
    assert refusal(capsys, "measure", files / "uncompiled.keras", "--gpus", 2, "--loss", "mse") == (
        "Expected `--optimizer` and `--loss` for a model that was saved without `compile()`. Received: "
        "--optimizer None, --loss mse. For example, use `--optimizer adam --loss mse`."
    )


def test_so_many_as_would_be_simulated_are_measured_of_gpus_that_are_there(files, capsys, measured, monkeypatch):
    monkeypatch.setattr("multigpu.model.devices.simulate_gpus", lambda n: None)  # as where there are as many
    answer(capsys, "measure", files / "small.keras", "--simulate", 2)
    answer(capsys, "measure", files / "small.keras", "--simulate", 4, "--gpus", 3)
    assert [len(parallel.plan.devices) for parallel, _, _ in measured] == [2, 3]


def test_simulating_too_late_and_no_gpus_are_refused(files, capsys, monkeypatch):
    line = refusal(capsys, "measure", files / "small.keras", "--simulate", 2)
    assert line.startswith("Expected `simulate_gpus()` to be called before TensorFlow uses a device")
    monkeypatch.setattr("multigpu.model.devices.available_gpus", lambda: [])
    assert refusal(capsys, "measure", files / "small.keras").startswith("Expected GPUs, or `--simulate 2`")


# Random rows ----------------------------------------------------------------------------------------------------------


def several(structure):
    """A model of ids and numbers, with outputs in a structure."""
    ids, numbers = keras.Input((None,), dtype="int32", name="ids"), keras.Input((4,), name="numbers")
    h = layers.LSTM(3, return_sequences=True)(layers.Embedding(5, 3)(ids))
    tags = layers.Dense(6, activation="softmax", name="tags")(h)
    score = layers.Dense(1, name="score")(layers.Concatenate()([layers.Flatten()(tags[:, 0]), numbers]))
    inputs, outputs = [ids, numbers], [tags, score]
    if structure is dict:
        inputs, outputs = {"ids": ids, "numbers": numbers}, {"tags": tags, "score": score}
    return keras.Model(inputs, outputs)


LOSSES = {"tags": "sparse_categorical_crossentropy", "score": keras.losses.Huber()}


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize(
    ("structure", "loss"),
    [
        (dict, LOSSES),
        (list, LOSSES),
        (list, list(LOSSES.values())),
        (list, [keras.losses.SparseCategoricalCrossentropy(), None]),
    ],
)
def test_several_outputs_get_targets_for_their_losses(structure, loss):
    model = several(structure)
    model.compile("sgd", loss, run_eagerly=True)
    batch = random_batch(model, 6, 7, None)
    assert batch.words == "6 random rows, whole numbers from 1 to 4, axes of open length are 7 long"
    x, y = batch[0]
    ids, numbers = (x["ids"], x["numbers"]) if structure is dict else x
    tags, score = (y["tags"], y["score"]) if structure is dict else y
    assert (ids.shape, ids.dtype, numbers.shape, numbers.dtype) == ((6, 7), np.int32, (6, 4), np.float32)
    assert 1 <= ids.min() <= ids.max() <= 4
    assert (tags.shape, tags.dtype, score.shape, score.dtype) == ((6, 7), np.int32, (6, 1), np.float32)
    assert np.isfinite(model.train_on_batch(x, y)).all()


def test_keras_takes_random_rows_without_a_warning():
    model = small()
    model.compile("sgd", "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(random_batch(model, 6, 7, None), steps_per_epoch=1, verbose=0)


FUNCTIONS = {name: loss for name, loss in vars(keras.losses).items() if inspect.isfunction(loss)}
CLASSES = {name: kind for name, kind in vars(keras.losses).items() if inspect.isclass(kind) and kind is not keras.Loss}
OTHER = {"get", "serialize", "deserialize", "categorical_generalized_cross_entropy"}  # the last one only with a `q`


@pytest.mark.parametrize("name", [*sorted(FUNCTIONS.keys() - OTHER), *sorted(CLASSES), "crossentropy"])
def test_each_loss_of_keras_gets_targets_that_it_takes_or_is_refused_by_name(name):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="softmax")])
    model.compile("sgd", CLASSES[name]() if name in CLASSES else FUNCTIONS.get(name, name), run_eagerly=True)
    if name.lower() in ("ctc", "circle"):
        with pytest.raises(ValueError, match=f"Received: '{name.lower()}'. Measure it in Python, with data: "):
            random_batch(model, 6, 7, None)
        return
    assert np.isfinite(model.train_on_batch(*random_batch(model, 6, 7, None)[0]))


def test_a_loss_of_ones_own_is_refused_by_name():
    def distance(y_true, y_pred):
        return tf.abs(y_true - y_pred)

    model = small()
    model.compile("sgd", distance)
    with pytest.raises(ValueError, match=r"Expected losses of Keras whose targets .* Received: 'distance'\."):
        random_batch(model, 6, 7, None)
    model.compile("sgd", ["mse", "mae", "mse"])
    with pytest.raises(ValueError, match=r"Expected one loss, or one for each of 1 outputs\. Received: loss="):
        random_batch(model, 6, 7, None)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_model_whose_layers_add_the_loss_needs_no_targets():
    model = small(False, layers.ActivityRegularization(0.1))
    model.compile("sgd", run_eagerly=True)
    (x,) = random_batch(model, 6, 7, None)[0]
    assert model.train_on_batch(x) > 0


@pytest.mark.parametrize(
    ("dtype", "below", "least", "most"),
    [("uint8", 1, 0, 0), ("int64", 3, 1, 2), ("float16", None, 0, 1), ("bool", None, 0, 1)],
)
def test_inputs_have_their_types_and_stay_below_what_is_said(dtype, below, least, most):
    inputs = keras.Input((50,), dtype=dtype)
    model = keras.Model(inputs, layers.Dense(2)(keras.ops.cast(inputs, "float32")))
    model.compile("sgd", "mse")
    x, _ = random_batch(model, 6, 7, below)[0]
    assert x.dtype == dtype
    assert least <= x.min() <= x.max() <= most


@pytest.mark.parametrize("kind", ["string", "sparse"])
def test_inputs_that_are_no_plain_numbers_are_refused_by_name(kind):
    given = {"dtype": "string"} if kind == "string" else {"sparse": True}
    inputs = keras.Input((4,), name="words", **given)
    model = keras.Model(inputs, inputs if kind == "string" else layers.Dense(2)(inputs), name="reader")
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        random_batch(model, 6, 7, None)
    assert str(error.value) == (
        "Expected inputs of plain numbers, to draw random rows. Received: the input 'words' of 'reader', which is "
        f"{kind}. Measure it in Python, with data: `multigpu.measure(parallel, x, y)`."
    )
