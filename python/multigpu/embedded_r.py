"""R inside this Python process, under its public name. See `multigpu.r.embedded`."""

from multigpu.r.embedded import AsItIs, RError, RFunction, RWarning, call, load_ipython_extension, run, start

__all__ = ["AsItIs", "RError", "RFunction", "RWarning", "call", "load_ipython_extension", "run", "start"]
