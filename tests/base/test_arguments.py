"""Every argument of every public function: a wrong value is refused by the argument's name, or has a meaning."""

import datetime
import inspect
import itertools
import os
import pathlib
import signal
from decimal import Decimal
from fractions import Fraction

import keras
import numpy as np
import pytest
import tensorflow as tf
from endless import Endless
from equality import dense_model, random_rows

import multigpu
from multigpu import embedded_r
from multigpu.base.arguments import shown

X, Y = random_rows(8, 3), random_rows(8, 2)
WRONG = -(2**70)  # for no argument at all


class NoRepr:
    """An object that cannot be shown."""

    def __repr__(self):
        raise RuntimeError


class NoPath(os.PathLike):
    """A path that cannot be told."""

    def __fspath__(self):
        raise RuntimeError


def in_itself():
    items = []
    items.append(items)
    return items


VALUES = {  # of all kinds; each is made anew
    **{repr(value): lambda value=value: value for value in (None, True, False, 0, 1, -1, 2**31, 2**70, WRONG, ..., 1j)},
    **{repr(value): lambda value=value: value for value in (0.5, 2.0, float("nan"), float("inf"), Decimal(2))},
    **{repr(value): lambda value=value: value for value in (Fraction(1, 2), "", "x", "2", "a\0b", "\ud800")},
    **{repr(value): lambda value=value: value for value in (b"", b"\0\1", [], (), {}, {0, 1}, [None], [[0], [1]])},
    **{repr(value): lambda value=value: value for value in ({"a": 1}, {0: 1}, range(0), range(10**9), int)},
    "long text": lambda: "x" * 10**6,
    "a bytearray": lambda: bytearray(b"\0\1"),
    "a memoryview": lambda: memoryview(b"\0\1"),
    "a list in itself": in_itself,
    "a generator": lambda: (number for number in range(2)),
    "an endless iterator": itertools.count,
    "an endless list": Endless,
    "an object": object,
    "an object without repr()": NoRepr,
    "a path that is none": NoPath,
    "a path": lambda: pathlib.Path("no folder", "x"),
    "a function": lambda: in_itself,
    "a module": lambda: os,
    "an error": lambda: ValueError("x"),
    "a date": lambda: datetime.date(2018, 1, 1),
    "no numbers": lambda: np.array([]),
    "three numbers": lambda: np.zeros(3),
    "words": lambda: np.array(["x", "y"]),
    "a number of numpy": lambda: np.float64(2.5),
    "a tensor": lambda: tf.constant([1.5, 2.5]),
    "a layer": lambda: keras.layers.Dense(2),
    "a model that is not built": lambda: keras.Sequential([keras.layers.Dense(1)]),
    "a dataset of numbers": lambda: tf.data.Dataset.range(3),
    "a configuration": lambda: {"class_name": "Nothing", "config": {}},
}
FLAG = {"True", "False", "0", "1"}
TEXT = {"'x'", "'2'", "long text"}
UNBUILT = "a model that is not built"
CUSTOM = {"None", "{}", "{'a': 1}", "a configuration"}
SAVED = {"'x'", "'2'"}
LIMIT = {"1", "2147483648", "1180591620717411303424", "0.5", "2.0", "inf", "a number of numpy"}

MEANT = {  # function → its arguments → the values that mean something
    "available_gpus": {},
    "bring_home": {"model": {UNBUILT}, "device": {"None"}},
    "clean_parallel_hdf5": {
        **{"filepath": SAVED, "to": SAVED, "custom_objects": CUSTOM, "overwrite": FLAG, "safe_mode": FLAG},
        **{"max_seconds": LIMIT, "max_gigabytes": LIMIT},
    },
    "estimate": {
        **{"model": set(), "gpus": {"None", "1"}, "batch_size": {"1"}, "optimizer": {"None"}},
        **{"cpu_merge": FLAG, "cpu_relocation": FLAG},
    },
    "join_cluster": {"resolver": {"None"}},
    "load_model_hdf5": {
        **{"filepath": SAVED, "custom_objects": CUSTOM, "compile": FLAG, "safe_mode": FLAG},
        **{"max_seconds": LIMIT, "max_gigabytes": LIMIT},
    },
    "load_model_weights_hdf5": {
        **{"object": {UNBUILT}, "filepath": SAVED, "by_name": FLAG, "skip_mismatch": FLAG, "reshape": FLAG},
        "safe_mode": FLAG,
    },
    "measure": {**{"parallel": set(), "x": set(), "y": {"None"}, "batch_size": {"1"}, "steps": {"1"}, "verbose": FLAG}},
    "multi_gpu_model": {"model": set(), "gpus": {"None"}, "cpu_merge": FLAG, "cpu_relocation": FLAG},
    "on_device": {"device": set()},
    "plot_history": {"history": set(), "filepath": {*SAVED, "None"}},
    "restore_old_names": {},
    "save_model_hdf5": {"object": {UNBUILT}, "filepath": SAVED, "overwrite": FLAG, "include_optimizer": FLAG},
    "save_model_weights_hdf5": {"object": {UNBUILT}, "filepath": SAVED, "overwrite": FLAG},
    "simulate_gpus": {"n": {"1"}, "memory_limit": {"1", "2147483648"}},
    "synchronize_batch_norm": {"model": {UNBUILT}, "synchronized": FLAG},
    "overview": {"batch_size": {"None", "1"}},
    "call": {"function": TEXT},
    "run": {"code": {*TEXT, "''"}},
    "load_ipython_extension": {"shell": set()},
}
SLOW = {
    "measure": {"y", "batch_size", "steps", "verbose"},  # what is meant takes real steps: test_measure.py
    "load_model_hdf5": {"max_seconds", "max_gigabytes"},  # which a model may exceed: test_hostile_models.py
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Function → how it is called with right values."""
    folder = tmp_path_factory.mktemp("arguments")
    model, parallel = dense_model(), multigpu.multi_gpu_model(dense_model(), gpus=2)
    parallel.compile("sgd", "mse")
    file, weights = str(folder / "model.h5"), str(folder / "weights.h5")
    multigpu.save_model_hdf5(model, file)
    multigpu.save_model_weights_hdf5(model, weights)
    right = {
        "bring_home": {"model": model, "device": "CPU:0"},
        "clean_parallel_hdf5": {"filepath": file, "to": str(folder / "clean.h5"), "overwrite": True},
        "estimate": {"model": model},
        "load_model_hdf5": {"filepath": file},
        "load_model_weights_hdf5": {"object": model, "filepath": weights},
        "measure": {"parallel": parallel, "x": X, "y": Y, "batch_size": 4, "steps": 1, "verbose": 0},
        "multi_gpu_model": {"model": model, "gpus": 2},
        "plot_history": {"history": {"loss": [2.0, 1.0]}, "filepath": str(folder / "history.png")},
        "save_model_hdf5": {"object": model, "filepath": str(folder / "saved.h5")},
        "save_model_weights_hdf5": {"object": model, "filepath": str(folder / "saved-weights.h5")},
        "simulate_gpus": {"n": 2},
        "synchronize_batch_norm": {"model": model},
    }
    functions = {name: getattr(multigpu if name in multigpu.__all__ else embedded_r, name, None) for name in MEANT}
    functions["overview"] = parallel.overview
    return {name: (function, right.get(name, {})) for name, function in functions.items()}


def named_arguments(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of `call()` and `run()`, as they are
    return {name for name, each in inspect.signature(function).parameters.items() if each.kind not in kinds}


@pytest.mark.quick
def test_the_table_has_every_argument_of_every_public_function(calls):
    public = {name for name in embedded_r.__all__ if inspect.isfunction(getattr(embedded_r, name))} - {"start"}
    functions = {name for name in multigpu.__all__ if inspect.isfunction(getattr(multigpu, name))}
    assert set(MEANT) == {*functions, *public, "overview"}
    assert {name: named_arguments(function) for name, (function, _) in calls.items()} == {
        name: set(arguments) for name, arguments in MEANT.items()
    }
    assert len(VALUES) >= 40


@pytest.fixture
def _not_for_ever():
    """What does not end is told as an error. The limit is generous: all of a test's calls take less than a second."""

    def told(*_):
        raise AssertionError("Expected calls to end. Received: one that did not within two minutes.")

    before = signal.signal(signal.SIGALRM, told)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refusal(function, arguments, name, value):
    """The error that a value ends in."""
    if name in ("code", "function"):  # the rest of whose arguments are R's
        return _error(lambda: function(value))
    return _error(lambda: function(**{**arguments, name: value}))


def _error(work):
    try:
        work()
    except Exception as error:  # the test tells which are right
        return error
    return None


def is_clear(error, name):
    """Whether an error names the argument, or the file that is not there or cannot be written."""
    return (isinstance(error, ValueError | TypeError) and name in str(error)) or isinstance(error, OSError)


@pytest.mark.usefixtures("_not_for_ever", "forked")
@pytest.mark.parametrize(
    ("function", "argument"), [(name, argument) for name, arguments in MEANT.items() for argument in arguments]
)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(function, argument, calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, right = calls[function]
    meant = MEANT[function][argument]
    errors = {kind: refusal(call, right, argument, make()) for kind, make in VALUES.items() if kind not in meant}
    unclear = {kind: repr(error)[:200] for kind, error in errors.items() if not is_clear(error, argument)}
    assert unclear == {}
    if argument not in ("filepath", "to"):  # no file system has a say in these
        assert not any(isinstance(error, OSError) for error in errors.values())
    assert all(len(str(error)) < 1000 for error in errors.values() if not isinstance(error, OSError))


ELSEWHERE = {"call", "run", "join_cluster", "simulate_gpus", "clean_parallel_hdf5"}  # need R, workers, a fresh process


@pytest.mark.usefixtures("_not_for_ever", "forked")
@pytest.mark.parametrize("function", sorted(set(MEANT) - ELSEWHERE))
def test_a_value_with_a_meaning_is_taken(function, calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, right = calls[function]
    for argument, meant in MEANT[function].items():
        if argument in SLOW.get(function, ()) or argument == "filepath":
            continue
        for kind in meant - {UNBUILT}:
            error = refusal(call, right, argument, VALUES[kind]())
            assert error is None or (argument == "overwrite" and isinstance(error, FileExistsError)), (argument, kind)


def test_a_value_is_shown_in_few_words_whatever_it_is():
    assert shown([0, "GPU:1"]) == "[0, 'GPU:1']"
    assert shown(in_itself()).startswith("[[")
    assert shown(NoRepr()).startswith("<NoRepr instance at ")
    assert max(len(shown(make())) for make in VALUES.values()) < 300
    assert len(shown("x" * 10**6)) == 200


def test_counts_of_numpy_are_whole_numbers(calls):
    estimate, right = calls["estimate"]
    assert estimate(**right, gpus=np.int32(2), batch_size=np.int64(4)) == estimate(**right, gpus=2, batch_size=4)
