"""What is converted between Python and R, and at what cost. Run by `tests/r/embedded/test_embedded_r.py`."""

import doctest
import gc
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from equality import dense_model, measured, random_rows

from multigpu import multi_gpu_model
from multigpu.embedded_r import AsItIs, RFunction, call, run, start
from multigpu.r import embedded

MEGABYTE = 2**20


def test_model_is_the_same_object_on_both_sides():
    model = dense_model()
    parallel = multi_gpu_model(model, gpus=2)
    for each in (model, parallel, model.layers[0], keras.optimizers.Adam()):
        assert call("identity", each) is each
    assert run("m <- model; m", model=model) is model
    assert run("m") is model
    assert call("inherits", model, "keras.src.models.model.Model") is True
    assert call("(function(model) model$layers[[1]])", model) is model.layers[0]
    assert call("(function(parallel) parallel$template)", parallel) is model


def test_models_in_lists_and_dicts_are_the_same_objects():
    model = dense_model()
    back = call("identity", {"models": [model, 1], "none": None})
    assert back["models"][0] is model
    assert back == {"models": [model, 1], "none": None}


def test_fit_in_r_steps_the_optimizer_that_python_holds():
    model = dense_model()
    optimizer = keras.optimizers.SGD(0.1)
    model.compile(optimizer, loss="mse")
    run(
        "fit(model, x, y, batch_size = 8, epochs = 1, verbose = 0)",
        model=model,
        x=random_rows(24, 3),
        y=random_rows(24, 2),
    )
    assert model.optimizer is optimizer
    assert int(optimizer.iterations) == 3


# Arrays from R --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["matrix(runif(6), 2)", "array(1:24, c(2, 3, 4))"])
def test_an_array_of_r_is_viewed_without_a_copy(code):
    first, second = run(f"x <- {code}; x"), run("x")
    assert np.shares_memory(first, second)  # two copies would not
    assert first.flags.f_contiguous
    assert first.tolist() == run("x").tolist() == second.tolist()


def test_a_view_is_read_only():
    view = run("matrix(runif(6), 2)")
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1.0


def test_a_view_outlives_its_name_in_r_and_stays_as_it_is_when_r_changes_its_array():
    view = run("x <- matrix(1, 100, 1000); x")
    run("x[1] <- 5")
    assert run("x[1]") == 5
    run("rm(x); for (i in 1:3) { gc(); y <- matrix(7, 100, 1000) }")
    assert (view == 1).all()


def test_a_vector_of_r_becomes_an_array_of_one_dimension():
    for code, expected in (
        ("c(1.5, 2)", [1.5, 2.0]),
        ("1:3", [1, 2, 3]),
        ("c(TRUE, FALSE)", [True, False]),
        ("numeric()", []),
    ):
        vector = run(code)
        assert isinstance(vector, np.ndarray)
        assert vector.shape == (len(expected),)
        assert vector.tolist() == expected


# Arrays to R ----------------------------------------------------------------------------------------------------------

NUMBERS = np.arange(24).reshape(2, 3, 4)
ARRAYS = {
    "float64": NUMBERS / 7,
    "float32": (NUMBERS / 7).astype("float32"),
    "float16": (NUMBERS / 7).astype("float16"),
    "int32": NUMBERS.astype("int32"),
    "uint8": NUMBERS.astype("uint8"),
    "int64": NUMBERS + 2**40,
    "uint32": NUMBERS.astype("uint32") + 2**31,
    "column order": np.asfortranarray(NUMBERS / 7),
    "every other": (NUMBERS / 7)[::-1, :, ::2],
    "other byte order": (NUMBERS / 7).astype(">f8"),
    "one dimension": np.arange(5.0),
    "one number": np.ones((1, 1)),
    "no rows": np.ones((0, 3)),
    "yes and no": NUMBERS % 2 == 0,
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_keeps_its_numbers_and_shape_to_r_and_back(array):
    kind = {"i": "integer", "u": "integer", "f": "double", "b": "logical"}[array.dtype.kind]
    if array.dtype in (np.int64, np.uint32):
        kind = "double"
    assert call("typeof", array) == kind
    assert np.atleast_1d(call("dim", array)).tolist() == list(array.shape)
    back = call("identity", array)
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)


def test_an_array_goes_to_r_with_one_copy():
    array = np.zeros((4000, 4000), "float32")
    call("dim", np.zeros((2, 2), "float32"))
    call("gc")
    grown = peak_growth(lambda: call("dim", array))
    # 122 MB are the doubles that R has; a cast beforehand would take 122 MB more
    assert 100 * MEGABYTE < grown < 160 * MEGABYTE


def test_what_is_passed_as_it_is_stays_a_python_object():
    array = np.zeros((4000, 4000), "float32")
    assert call("identity", AsItIs(array)) is array
    assert peak_growth(lambda: call("length", AsItIs(array))) < 10 * MEGABYTE
    model = dense_model()
    assert call("predict", model, AsItIs(random_rows(5, 3))).shape == (5, 2)


def peak_growth(work) -> int:
    """Bytes that the process needed on top of what it had, at the worst moment."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


def memory(field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024


# Histories ------------------------------------------------------------------------------------------------------------


def train(model, **fit):
    model.compile(**measured())
    x, y = random_rows(16, 3), random_rows(16, 2)
    return model.fit(x, y, batch_size=8, verbose=0, validation_data=(x, y), **fit)


def test_a_history_is_one_of_r_in_r():
    history = train(dense_model(), epochs=3)
    assert call("inherits", history, "multigpu_history") is True
    table = call("(function(h) as.list(as.data.frame(h)))", history)
    assert table["value"].tolist() == [value for values in history.history.values() for value in values]
    assert table["epoch"].tolist() == [1, 2, 3] * 4


@pytest.mark.parametrize("fit", [{"epochs": 1}, {"epochs": 3}, {"epochs": 6, "initial_epoch": 4}], ids=str)
def test_a_history_keeps_its_numbers_to_r_and_back(fit):
    history = train(dense_model(), **fit)
    back = call("identity", history)
    assert isinstance(back, keras.callbacks.History)
    assert back.history == history.history
    assert back.epoch == history.epoch
    assert back.params == history.params


def test_what_fit_returns_in_r_is_a_history_of_keras_in_python():
    model = dense_model()
    model.compile(**measured())
    code = "fit(model, x, y, batch_size = 8, epochs = 2, verbose = 0)"
    history = run(code, model=model, x=random_rows(16, 3), y=random_rows(16, 2))
    assert isinstance(history, keras.callbacks.History)
    assert history.epoch == [0, 1]
    assert {name: len(values) for name, values in history.history.items()} == {"loss": 2, "mae": 2}


# Functions and other values -------------------------------------------------------------------------------------------


def test_plain_values_are_converted():
    values = (None, True, 3, 2.5, "text", "Grüße", ["a", "b"], {"a": 1, "b": {"c": [None, "d"]}}, [])
    for value in values:
        assert call("identity", value) == value
    assert call("sum", [1, 2, 3]) == 6  # a list of numbers is a vector


def test_a_function_of_r_is_called_from_python_and_is_itself_again_in_r():
    add = run("add <- function(x, y = 1) x + y")
    assert isinstance(add, RFunction)
    assert add(2) == 3
    assert add(2, y=5) == 7
    np.testing.assert_array_equal(add(np.ones((2, 2)), np.ones((2, 2))), 2 * np.ones((2, 2)))
    assert run("identical(add, f)", f=add) is True


def test_r_forgets_functions_that_python_has_forgotten():
    before = number_kept()
    functions = [run("function() 1") for _ in range(5)]
    assert number_kept() == before + 5
    del functions
    assert number_kept() == before


def number_kept():
    gc.collect()
    run("for (i in 1:3) gc()")  # R lets go of the handles that it gave to Python
    return run("length(multigpu:::kept)")


def test_a_function_of_python_is_called_from_r():
    assert call("vapply", [1.0, 2.0], lambda x: x * 10, 0.0).tolist() == [10.0, 20.0]
    assert run("f(3, word = 'x')", f=lambda n, word: word * int(n)) == "xxx"


def test_calls_nest():
    fold = run("function(n, f) if (n == 0) 0 else n + f(n - 1)")

    def back(n):
        return fold(n, back)

    assert fold(10, back) == 55


def test_names_of_a_script_stay_and_arguments_of_a_call_do_not():
    run("kept_name <- x + 1", x=1)
    assert run("kept_name + x") == 3
    before = set(run("ls(globalenv())"))
    call("sum", 1, 2)
    call("paste", "a", sep="-")
    assert set(run("ls(globalenv())")) == before


def test_the_examples_in_the_docstrings_run():
    done = doctest.testmod(embedded)
    assert (done.failed, done.attempted) == (0, 4)


def test_starting_again_does_nothing():
    start()
    run("x <- 12")
    start()
    assert run("x") == 12
