"""Interrupts of training, taken where nothing is left half done, while R waits for Python.

R takes an interrupt by jumping out of what it runs. Were that a callback that Python called, the jump would leave
Python's own calls half done, and Python would fail later on, anywhere. Python takes one between any two of its
instructions, of which some are TensorFlow's, in the middle of changing its state. So it is noted, and training ends
after the step that is under way. A second interrupt ends it at once.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras


class EndsInOrder(keras.callbacks.Callback):
    """Ends a verb of Keras with KeyboardInterrupt, before or after a step, once an interrupt was noted."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = False
        for phase in ("train", "test", "predict"):
            setattr(self, f"on_{phase}_batch_begin", self._end_if_noted)
            setattr(self, f"on_{phase}_batch_end", self._end_if_noted)

    def note(self, *_: Any) -> None:
        """Notes an interrupt; the next one is not waited for."""
        self._noted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _end_if_noted(self, batch: int, logs: Any = None) -> None:
        if self._noted:
            raise KeyboardInterrupt


def interruptible(verb: Callable[..., Any], *arguments: Any, callbacks: Any = None, **named: Any) -> Any:
    """`verb(*arguments, callbacks=callbacks, **named)`, of Keras, which an interrupt ends with KeyboardInterrupt."""
    end = EndsInOrder()
    with _handled_by(end.note):
        return verb(*arguments, callbacks=[end, *(callbacks or [])], **named)


@contextmanager
def _handled_by(handler: Callable[..., None]) -> Iterator[None]:
    """Handles SIGINT in Python, and gives it back to whoever had it before, which may not be Python."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    set_handler = ctypes.CDLL(None).signal  # Python's own `signal` cannot give back a handler that is not Python's
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    of_python = signal.getsignal(signal.SIGINT)
    before = set_handler(signal.SIGINT, None)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if of_python is not None:
            signal.signal(signal.SIGINT, of_python)
        set_handler(signal.SIGINT, before)
