"""Interrupts as Python takes them, while R waits for Python.

R takes an interrupt by jumping out of what it runs. Were that a callback that Python called, the jump would leave
Python's own calls half done, and Python would fail later on, anywhere. So while R waits for training to end, Python
takes the interrupt, between two of its own instructions; R then sees it as an interrupt of the verb that it called.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def interruptible(verb: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """`verb(*arguments, **named)`, which an interrupt ends with KeyboardInterrupt."""
    with python_interrupts():
        return verb(*arguments, **named)


@contextmanager
def python_interrupts() -> Iterator[None]:
    """Lets Python handle SIGINT, and gives it back to whoever had it before, which may not be Python."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    set_handler = ctypes.CDLL(None).signal  # Python's own `signal` cannot give back a handler that is not Python's
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    of_python = signal.getsignal(signal.SIGINT)
    before = set_handler(signal.SIGINT, None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if of_python is not None:
            signal.signal(signal.SIGINT, of_python)
        set_handler(signal.SIGINT, before)
