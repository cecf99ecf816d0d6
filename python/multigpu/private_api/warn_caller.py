"""Warn at the line of the caller, not at a line of this package."""

import sys
import warnings

NOT_THE_USER = ("multigpu.", "keras.", "tensorflow.")


def warn(message: str) -> None:
    """Warn that something was done differently from what was asked."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(NOT_THE_USER):  # R has no frame in Python
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)
