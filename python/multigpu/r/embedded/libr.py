"""Call R's own library with Python's lock held.

rpy2 releases the lock while R runs, as is usual for C code that does not use Python. But reticulate, inside R, does use
Python: 1.28 frees Python objects without the lock when R collects garbage, and the process aborts. 1.46 hangs or aborts
when R ends. `ctypes.PyDLL` holds the lock from beginning to end, so neither can happen.
"""

import ctypes
import resource
import threading
from contextlib import suppress
from typing import Any

from multigpu.base.refusal import refuse
from multigpu.r.embedded.interrupts import Interrupts

ASKS_PYTHON = "_ZN10reticulate9libpython17Py_AddPendingCallE"  # reticulate's variable for its timer's function


class LockedR:
    """The few functions of R that this package needs.

    Args:
        library: path of libR, which is loaded already.

    Attributes:
        interrupts: the handling of Ctrl-C.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.PyDLL(library)
        self.interrupts = Interrupts(self._library)
        # rpy2 removes R's own limit of the stack because of threads, but without it, infinite recursion crashes the
        # process
        ctypes.c_size_t.in_dll(self._library, "R_CStackLimit").value = stack_limit()

    def evaluate(self, code: str) -> str | None:
        """Run R code at top level. Return its value as text, or None if R printed an error instead."""
        check_thread()
        failed = ctypes.c_int(0)
        world = ctypes.c_void_p.in_dll(self._library, "R_GlobalEnv")
        value = self._protected("R_tryEval", self._call_of(code), world, ctypes.byref(failed))
        text = None if failed.value else self._text_of(value)
        self._library.Rf_unprotect(3)
        return text

    def end(self) -> None:
        """Run R's last steps. They release Python objects, so Python must still be running."""
        self.evaluate("if (is.function(.GlobalEnv$.Last)) .GlobalEnv$.Last()")
        reticulate = self.evaluate("c(getLoadedDLLs()$reticulate[['path']], '')")
        for step in ("R_RunExitFinalizers", "Rf_KillAllDevices", "R_CleanTempDir", "R_gc"):
            self._library[step]()
        self._library.Rf_endEmbeddedR(0)
        self._stop_timer(reticulate)

    def _stop_timer(self, reticulate: str | None) -> None:
        """Make reticulate's timer, which calls Python every half a second to process R's events, do nothing.

        The process may take longer than that to end, when Python no longer exists.
        """
        if not reticulate:
            return
        no_effect = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        with suppress(ValueError):  # missing in other versions: newer ones stop their timer themselves
            asks_python = ctypes.c_void_p.in_dll(ctypes.PyDLL(reticulate), ASKS_PYTHON)
            asks_python.value = no_effect.value

    def _call_of(self, code: str) -> Any:
        """Return the call `eval(str2expression(code))`, twice protected from R's garbage collector."""
        parsed = self._protected("Rf_lang2", self._symbol("str2expression"), self._made("Rf_mkString", code.encode()))
        return self._protected("Rf_lang2", self._symbol("eval"), parsed)

    def _text_of(self, value: Any) -> str:
        characters = self._made("Rf_asChar", value)
        self._library.Rf_translateCharUTF8.restype = ctypes.c_char_p
        return self._library.Rf_translateCharUTF8(characters).decode()

    def _symbol(self, name: str) -> Any:
        return self._made("Rf_install", name.encode())

    def _protected(self, name: str, *arguments: Any) -> Any:
        return self._made("Rf_protect", self._made(name, *arguments))

    def _made(self, name: str, *arguments: Any) -> Any:
        """Return an object of R, which is a pointer."""
        function = self._library[name]
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))


def stack_limit() -> int:
    """Return how many bytes of the stack R may use: the value that it would find by itself."""
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    at_most = 16_000_000
    return int(0.95 * (at_most if limit == resource.RLIM_INFINITY else min(limit, at_most)))


def check_thread() -> None:
    """Raise an error on any thread except the main one."""
    if threading.current_thread() is not threading.main_thread():
        raise refuse(
            "R to be called on Python's main thread, the only one that it can run on",
            f"a call on the thread {threading.current_thread().name!r}",
            "Let the main thread call it.",
            RuntimeError,
        )
