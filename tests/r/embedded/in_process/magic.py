"""`%%R` cells with the conversion of this package. Run by `tests/r/embedded/test_embedded_r.py`."""

import gc

import keras
import numpy as np
import pytest
from equality import dense_model, measured, random_rows
from IPython.core.interactiveshell import InteractiveShell

from multigpu.embedded_r import call

pytestmark = pytest.mark.filterwarnings("ignore:The 'source' parameter")  # what rpy2 still passes to IPython


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "multigpu.embedded_r")
    return shell


def cell(shell, line, code, **names):
    shell.push(names)
    shell.run_cell(f"%%R {line}\n{code}").raise_error()
    return shell.user_ns


def test_a_model_is_the_same_object_in_a_cell(shell):
    model = dense_model()
    names = cell(shell, "-i model -o back,layer", "back <- model; layer <- model$layers[[1]]", model=model)
    assert names["back"] is model
    assert names["layer"] is model.layers[0]
    assert call("get", "back") is model


def test_a_cell_trains_and_gives_a_history_of_keras(shell):
    model = dense_model()
    model.compile(**measured())
    code = "history <- fit(model, x, y, batch_size = 8, epochs = 2, verbose = 0)"
    history = cell(shell, "-i model,x,y -o history", code, model=model, x=random_rows(16, 3), y=random_rows(16, 2))[
        "history"
    ]
    assert isinstance(history, keras.callbacks.History)
    assert len(history.history["loss"]) == 2
    assert int(model.optimizer.iterations) == 4
    frame = cell(shell, "-i history -o rows", "rows <- nrow(as.data.frame(history))", history=history)
    assert frame["rows"] == 4


def test_arrays_are_converted_as_in_run(shell):
    x = random_rows(4, 3)
    names = cell(shell, "-i x -o first,second", "first <- x * 2; second <- first", x=x)
    np.testing.assert_allclose(names["first"], x * 2, rtol=1e-6)
    assert not names["first"].flags.writeable
    assert np.shares_memory(names["first"], names["second"])


def test_functions_and_plain_values_are_converted(shell):
    code = "g <- function(x) f(x) + 1; n <- g(1); text <- 'a'; none <- NULL; l <- list(a = 1, b = list(TRUE))"
    names = cell(shell, "-i f -o g,n,l,text,none", code, f=lambda x: x * 10)
    assert (names["text"], names["none"]) == ("a", None)
    assert names["n"] == 11
    assert names["g"](2.0) == 21
    assert names["l"] == {"a": 1.0, "b": [True]}


def test_data_frames_and_factors_stay_those_of_rpy2(shell):
    names = cell(shell, "-o frame,levels", "frame <- data.frame(a = 1:2); levels <- factor(c('x', 'y'))")
    for value in names["frame"], names["levels"]:
        assert type(value).__module__.startswith(("rpy2", "numpy"))


def test_an_error_of_python_in_a_cell_is_one_of_r(shell):
    def reject():
        raise ValueError("not today")

    code = "text <- tryCatch(f(), error = function(e) conditionMessage(e))"
    assert "not today" in cell(shell, "-i f -o text", code, f=reject)["text"]


def test_an_error_in_a_cell_leaves_r_usable(shell):
    with pytest.raises(Exception, match="no such thing"):
        cell(shell, "", "stop('no such thing')")
    assert cell(shell, "-o n", "n <- 2")["n"] == 2


def test_100_cells_with_both_collectors_at_work(shell):
    model = dense_model()
    gc.freeze()
    for turn in range(100):
        code = "back <- list(model, model$layers); n <- i + 1; invisible(gc(full = FALSE))"
        names = cell(shell, "-i model,i -o back,n", code, model=model, i=turn)
        assert names["n"] == turn + 1
        assert names["back"][0] is model
        gc.collect()
