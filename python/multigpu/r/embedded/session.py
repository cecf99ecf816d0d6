"""R in this process: started once, called, and ended in order."""

import atexit
import functools
import importlib
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from multigpu.base.version import __version__
from multigpu.r.embedded import requirements
from multigpu.r.embedded.conversion import RFunction, answering
from multigpu.r.embedded.libr import LockedR, check_thread
from multigpu.r.embedded.request import Request, RError
from multigpu.r.embedded.rpy2_gil import lock_rpy2

VERSIONS = """
local({
  version <- function(package) tryCatch(as.character(packageVersion(package)), error = function(e) "")
  paste(version("reticulate"), version("multigpu"), paste(.libPaths(), collapse = ", "), sep = "\\n")
})
"""
ATTACH = "suppressPackageStartupMessages(library(multigpu)); multigpu:::core()"


def ask(request: Request) -> Any:
    """Return R's reply to a request. Start R if necessary."""
    r = started_r()
    check_thread()
    with r.interrupts.shared_with_r():
        is_answered = answering(request, lambda: r.evaluate("multigpu:::answer_python()"))
    if is_answered is None:
        raise RError("R could not answer. The text that R printed gives the reason.")
    return request.reply()


def new_function() -> RFunction:
    """Return a handle for a function that R is about to keep."""
    return RFunction(ask)


@functools.cache
def started_r() -> LockedR:
    """Return R with this package attached, and with its reticulate attached to this Python. Start it once."""
    check_thread()
    requirements.check_r_and_rpy2()
    with _interrupts_left_alone():
        r = _bare_r()
        reticulate, multigpu, libraries = (r.evaluate(VERSIONS) or "\n\n").split("\n")
        requirements.check_packages(reticulate, multigpu, __version__, libraries)
        if requirements.is_before(reticulate, "1.41"):
            lock_rpy2(importlib.import_module("rpy2.rinterface_lib.openrlib"))
        if r.evaluate(ATTACH) is None:
            raise RError("The R package multigpu does not load. The text that R printed gives the reason.")
    return r


@functools.cache
def _bare_r() -> LockedR:
    """Return R as rpy2 starts it. rpy2 sends R's output to Python."""
    rinterface: Any = importlib.import_module("rpy2.rinterface")
    situation = importlib.import_module("rpy2.situation")
    if not rinterface.embedded.isinitialized():
        rinterface.initr()
    r = LockedR(situation.get_rlib_path(rinterface.openrlib.R_HOME, platform.system()))
    atexit.unregister(rinterface.endr)  # rpy2 would release Python's lock when it ends R
    rinterface.endr = rinterface.embedded.endr = lambda fatal: None  # rpy2 registers it when it is imported later
    atexit.register(r.end)
    return r


@contextmanager
def _interrupts_left_alone() -> Iterator[None]:
    """Restore the handler of Ctrl-C after a `with` block: rpy2 replaces it, and reticulate may."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
