"""Errors, warnings and interrupts on their way between Python and R. Run by `tests/r/embedded/test_embedded_r.py`."""

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

import keras
import pytest
from equality import dense_model, measured, random_rows

from multigpu import multi_gpu_model
from multigpu.embedded_r import RError, RWarning, call, run


class RejectedError(Exception):
    """An error of Python that is its own."""


def reject(*_):
    raise RejectedError("not today")


def test_an_error_of_r_is_an_exception_with_its_message():
    with pytest.raises(RError) as caught:
        run("x <- 1\nstop('no such file: ', 'a.csv')")
    assert str(caught.value) == "no such file: a.csv"
    assert caught.value.__cause__ is None
    assert run("x") == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("log('a')", "non-numeric argument to mathematical function"),
        ("1 +* 2", "unexpected '\\*'"),
        ("no_such_name", "object 'no_such_name' not found"),
        ("f <- function(n) f(n + 1); f(1)", "infinite recursion|too close to the limit|stack"),
        ("stop('Grüße')", "^Grüße$"),
    ],
)
def test_errors_of_many_kinds_leave_r_usable(code, message):
    with pytest.raises(RError, match=message):
        run(code)
    assert run("1 + 1") == 2


def test_an_error_of_python_is_a_condition_in_r():
    assert "not today" in run("tryCatch(f(), error = function(e) conditionMessage(e))", f=reject)
    assert run("tryCatch(f(), error = function(e) 'caught', finally = done <- TRUE)", f=reject) == "caught"
    assert run("done") is True


def test_an_error_of_python_goes_through_r_and_back_as_the_cause():
    for code in ("f()", "sapply(1:2, f)", "multigpu:::with_clean_errors(f())", "tryCatch(f(), finally = 1)"):
        with pytest.raises(RError, match=r"not today$") as caught:
            run(code, f=reject)
        assert isinstance(caught.value.__cause__, RejectedError)
    with pytest.raises(RError, match=r"^of r$") as caught:
        run("tryCatch(f(), error = identity); stop('of r')", f=reject)
    assert caught.value.__cause__ is None


def test_a_refusal_of_this_package_has_its_own_words_in_both_languages():
    model = dense_model()
    with pytest.raises(ValueError, match="gpus") as of_python:
        multi_gpu_model(model, gpus=1)
    with pytest.raises(RError) as of_r:
        call("multi_gpu_model", model, gpus=1)
    in_r_words = str(of_python.value).replace("gpus=1", "gpus = 1")
    assert str(of_r.value) == in_r_words.replace("multigpu.TooFewGPUsError", "multigpu_too_few_gpus")


def test_an_error_of_r_inside_fit_of_python_ends_it_and_names_its_cause():
    model = dense_model()
    model.compile(**measured())
    stop = run("function(epoch, logs) if (epoch == 1) stop('enough') else NULL")
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: stop(epoch, logs))
    with pytest.raises(RError, match=r"^enough$"):
        model.fit(random_rows(16, 3), random_rows(16, 2), epochs=3, verbose=0, callbacks=[callback])
    model.fit(random_rows(16, 3), random_rows(16, 2), verbose=0)
    assert run("1 + 1") == 2


def test_errors_pass_through_both_languages_several_times():
    call_it = run("function(f) f()")
    with pytest.raises(RError, match="not today"):
        call_it(lambda: call_it(lambda: call_it(reject)))
    assert run("1 + 1") == 2


def test_warnings_of_r_are_warnings():
    with pytest.warns(RWarning, match=r"^careful$"):
        assert run("warning('careful'); 5") == 5
    with pytest.warns(RWarning, match="NAs introduced by coercion"):
        call("as.integer", "a")


def test_messages_of_r_and_what_it_prints_go_where_python_prints(capsys):
    run("message('to whom it may concern'); cat('printed\\n'); print(1:3)")
    printed = capsys.readouterr()
    assert printed.err == "to whom it may concern\n"
    assert printed.out == "printed\n[1] 1 2 3\n"


def test_another_thread_is_refused():
    refused = []

    def ask():
        for work in (lambda: run("1"), lambda: one()):
            try:
                work()
            except RuntimeError as error:
                refused.append(str(error))

    one = run("function() 1")
    thread = threading.Thread(target=ask, name="second")
    thread.start()
    thread.join()
    assert (
        refused
        == [
            "Expected R to be called on Python's main thread, the only one that it can run on. Received: a call on the "
            "thread 'second'. Let the main thread call it."
        ]
        * 2
    )


def test_an_interrupt_of_python_below_r_is_one_of_python_again():
    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        run("f()", f=interrupted)
    assert run("1 + 1") == 2


@pytest.mark.parametrize("code", ["repeat {}", "Sys.sleep(20)", "f()", "for (i in 1:1e9) f()"])
def test_ctrl_c_ends_what_r_runs(code, tmp_path):
    with interrupt_after(tmp_path / "started") as start, pytest.raises(KeyboardInterrupt):
        run(start + code, f=lambda: time.sleep(0.01 if "for" in code else 100))
    assert run("1 + 1") == 2


def test_ctrl_c_is_a_condition_in_r(tmp_path):
    with interrupt_after(tmp_path / "started") as start:
        assert run(f"tryCatch({{ {start} repeat {{}} }}, interrupt = function(i) 'caught')") == "caught"


@contextmanager
def interrupt_after(started):
    """R code after which another process interrupts this one, whose threads have to wait while R runs."""
    script = f"until [ -e '{started}' ]; do sleep 0.1; done; kill -INT {os.getpid()}"
    with subprocess.Popen(["sh", "-c", script]):
        yield f"file.create('{started}'); "


def test_ctrl_c_stays_with_whoever_had_it_in_python():
    run("1")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert run("1 + 1") == 2


def test_code_of_r_that_jumps_to_top_level_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        run("invokeRestart('abort')")
    assert run("1 + 1") == 2
