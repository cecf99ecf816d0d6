"""Who handles Ctrl-C: Python, until R is called; then both, and whichever runs takes it."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Handlers(NamedTuple):
    """What is called for SIGINT.

    Attributes:
        of_python: a function of Python, called between two of its instructions.
        of_c: address of a C function, called at once.
    """

    of_python: Any
    of_c: int | None


def handlers() -> Handlers:
    """The handlers in place."""
    of_c = _set_of_c(None)  # the only way to learn it
    _set_of_c(of_c)
    return Handlers(signal.getsignal(signal.SIGINT), of_c)


def set_handlers(new: Handlers) -> None:
    """Puts handlers in place."""
    signal.signal(signal.SIGINT, new.of_python)
    _set_of_c(new.of_c)


@contextmanager
def handled_by(those: Handlers) -> Iterator[None]:
    """Ctrl-C handled by those, for a while."""
    before = handlers()
    set_handlers(those)
    try:
        yield
    finally:
        set_handlers(before)


def _set_of_c(handler: int | None) -> int | None:
    """Sets the handler that C has, and gives the one before; Python's own `signal` knows only those of Python."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    return set_handler(signal.SIGINT, handler)
