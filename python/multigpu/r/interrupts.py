"""Interrupt training, while R waits for Python, at a point where no work is half done.

R handles an interrupt by jumping out of the running code. If that is a callback that Python called, the jump leaves
Python's own calls half done, and Python fails later, anywhere. Python handles an interrupt between any two of its
instructions, even while TensorFlow changes its state. So the interrupt is only noted, and training ends after the
current step. A second interrupt ends it at once.
"""

import ctypes
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras


class EndsInOrder(keras.callbacks.Callback):
    """End a Keras method with KeyboardInterrupt, before or after a step, once an interrupt was noted."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = False
        for phase in ("train", "test", "predict"):
            setattr(self, f"on_{phase}_batch_begin", self._end_if_noted)
            setattr(self, f"on_{phase}_batch_end", self._end_if_noted)

    def note(self, *_: Any) -> None:
        """Note an interrupt. The next one ends training at once."""
        self._noted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _end_if_noted(self, batch: int, logs: Any = None) -> None:
        if self._noted:
            raise KeyboardInterrupt


def interruptible(verb: Callable[..., Any], *arguments: Any, callbacks: Any = None, **named: Any) -> Any:
    """Call a Keras method with these arguments. An interrupt ends it with KeyboardInterrupt between steps."""
    if not callbacks and "callbacks" not in inspect.signature(verb).parameters:  # of a template's own method
        return verb(*arguments, **named)
    end = EndsInOrder()
    with _handled_by(end.note):
        return verb(*arguments, callbacks=[end, *(callbacks or [])], **named)


@contextmanager
def _handled_by(handler: Callable[..., None]) -> Iterator[None]:
    """Handle SIGINT in Python inside a `with` block, then restore the handler, which may not be Python's."""
    if threading.current_thread() is not threading.main_thread():
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
