"""R in this process: started once, asked, and ended in order."""

import atexit
import functools
import importlib
import platform
import signal
from typing import Any

from multigpu import __version__
from multigpu.embedded_r import missing
from multigpu.embedded_r.crossing import RFunction, pending
from multigpu.embedded_r.locked_rpy2 import lock_rpy2
from multigpu.embedded_r.locked_r import LockedR, check_thread
from multigpu.embedded_r.request import RError, Request

VERSIONS = """
local({
  version <- function(package) tryCatch(as.character(packageVersion(package)), error = function(e) "")
  paste(version("reticulate"), version("multigpu"), paste(.libPaths(), collapse = ", "), sep = "\\n")
})
"""


def ask(request: Request) -> Any:
    """R's reply to a request, for which R is started if need be."""
    check_thread()
    r = started_r()
    pending.append(request)
    try:
        with r.ctrl_c.shared_with_r():
            is_answered = r.evaluate("multigpu:::answer_python()")
    finally:
        pending.pop()
    if is_answered is None:
        raise RError("R could not answer; what it printed tells why.")
    return request.reply()


def new_function() -> RFunction:
    """A handle for a function that R is about to keep."""
    return RFunction(ask)


@functools.cache
def started_r() -> LockedR:
    """R with this package attached; started the first time."""
    check_thread()
    missing.check_r_and_rpy2()
    handler = signal.getsignal(signal.SIGINT)
    try:
        return _start()
    finally:
        signal.signal(signal.SIGINT, handler)  # rpy2 and reticulate have put theirs in its place


def _start() -> LockedR:
    """Starts R by rpy2, which takes what R prints to Python, and reticulate in it."""
    rinterface = importlib.import_module("rpy2.rinterface")
    situation = importlib.import_module("rpy2.situation")
    rinterface.initr()
    r = LockedR(situation.get_rlib_path(rinterface.openrlib.R_HOME, platform.system()))
    _end_in_order(rinterface, r)
    reticulate, multigpu, libraries = (r.evaluate(VERSIONS) or "\n\n").split("\n")
    missing.check_packages(reticulate, multigpu, __version__, libraries)
    if missing.is_before(reticulate, "1.41"):
        lock_rpy2(rinterface.openrlib)
    if r.evaluate("suppressPackageStartupMessages(library(multigpu)); multigpu:::crossing()") is None:
        raise RError("The R package multigpu does not load; what R printed tells why.")
    return r


def _end_in_order(rinterface: Any, r: LockedR) -> None:
    """Ends R with Python's lock held, in place of rpy2, which gives it up."""
    atexit.unregister(rinterface.endr)
    rinterface.endr = rinterface.embedded.endr = lambda fatal: None  # what rpy2 registers if it is imported later
    atexit.register(r.end)
