"""An interrupt ends training between two steps, and its handler is given back."""

import ctypes
import os
import signal
import threading

import keras
import numpy as np
import pytest

from multigpu.r.interrupts import interruptible


@pytest.fixture
def handler_of_another_language():
    """A handler of SIGINT that Python knows nothing of, as R has one, and what it got."""
    got = []
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(got.append)
    before = libc.signal(signal.SIGINT, ctypes.cast(handler, ctypes.c_void_p))
    yield got
    libc.signal(signal.SIGINT, before)


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)


def model_and_rows():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, np.ones((8, 4))


class At(keras.callbacks.Callback):
    """Calls a function at a moment."""

    def __init__(self, moment, function):
        super().__init__()
        setattr(self, moment, lambda *_, **__: function())


def test_training_ends_after_the_step_under_way(handler_of_another_language):
    model, x = model_and_rows()
    at = At("on_train_batch_begin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        interruptible(model.fit, x, x[:, :1], batch_size=2, verbose=0, callbacks=[at])
    assert int(model.optimizer.iterations.numpy()) == 1  # the step was taken, whole, and no other
    assert handler_of_another_language == []


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_evaluate_and_predict_end_as_well(verb):
    model, x = model_and_rows()
    moment = {"evaluate": "on_test_batch_begin", "predict": "on_predict_batch_begin"}[verb]
    arguments = (x, x[:, :1]) if verb == "evaluate" else (x,)
    with pytest.raises(KeyboardInterrupt):
        interruptible(getattr(model, verb), *arguments, verbose=0, callbacks=[At(moment, interrupt)])


def test_a_second_interrupt_ends_training_at_once():
    model, x = model_and_rows()
    reached = []

    def twice():
        interrupt()
        reached.append("after the first")
        interrupt()
        reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        interruptible(model.fit, x, x[:, :1], verbose=0, callbacks=[At("on_epoch_begin", twice)])
    assert reached == ["after the first"]


def test_the_handler_is_given_back_to_who_had_it(handler_of_another_language):
    model, x = model_and_rows()
    interruptible(model.predict, x, verbose=0)
    interrupt()
    assert handler_of_another_language == [signal.SIGINT]


def test_a_handler_of_python_is_given_back():
    before = signal.getsignal(signal.SIGINT)
    model, x = model_and_rows()
    interruptible(model.predict, x, verbose=0)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_other_threads_leave_the_handler_alone():
    model, x = model_and_rows()
    results = []
    thread = threading.Thread(target=lambda: results.append(interruptible(model.predict, x, verbose=0)))
    thread.start()
    thread.join()
    assert results[0].shape == (8, 1)
