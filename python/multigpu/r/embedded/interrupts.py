"""Handle Ctrl-C while R runs: Python's handler still runs, and R stops if that handler ends the training."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Pass Ctrl-C on to R while R runs.

    Args:
        library: R's library.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._interrupted = ctypes.c_int.in_dll(library, "R_interrupts_pending")
        self._asked_by_r = ctypes.c_void_p.in_dll(library, "ptr_R_ProcessEvents")
        self._pause = ctypes.CFUNCTYPE(None)(_pause)
        self._asked_by_r.value = None  # rpy2's function loses interrupts, and is deleted before R ends

    @contextmanager
    def shared_with_r(self) -> Iterator[None]:
        """Make R check regularly, while it runs in a `with` block, whether it has to stop."""
        handler, asked = signal.getsignal(signal.SIGINT), self._asked_by_r.value
        if not callable(handler):  # Python does not handle interrupts
            yield
            return
        signal.signal(signal.SIGINT, lambda number, frame: self._handle(handler, number, frame))
        self._asked_by_r.value = ctypes.cast(self._pause, ctypes.c_void_p).value
        try:
            yield
        finally:
            self._asked_by_r.value = asked
            signal.signal(signal.SIGINT, handler)

    def _handle(self, handler: Any, number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            if frame is None or frame.f_code is not _pause.__code__:
                raise
            self._interrupted.value = 1  # R is running, not Python


def _pause() -> None:
    """Do nothing. Python calls handlers of signals between its instructions, and this runs some."""
