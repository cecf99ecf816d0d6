"""An interrupt ends a verb in order, and its handler is given back."""

import ctypes
import os
import signal
import threading

import pytest

from multigpu.interrupts import interruptible


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


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_inside_is_pythons_and_afterwards_that_of_who_had_it(handler_of_another_language):
    with pytest.raises(KeyboardInterrupt):
        interruptible(interrupt)
    assert handler_of_another_language == []
    interrupt()
    assert handler_of_another_language == [signal.SIGINT]


def test_the_verb_gets_its_arguments_and_gives_its_value():
    assert interruptible(divmod, 7, 2) == (3, 1)
    assert interruptible(int, "11", base=2) == 3


def test_a_handler_of_python_is_given_back():
    before = signal.getsignal(signal.SIGINT)
    interruptible(int)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_other_threads_leave_the_handler_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(interruptible(int, "7")))
    thread.start()
    thread.join()
    assert results == [7]
