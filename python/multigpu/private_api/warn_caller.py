"""A warning that points at the line of the caller, not into this package."""

import sys
import warnings

NOT_THE_USER = ("multigpu.", "keras.", "tensorflow.")


def warn(message: str) -> None:
    """Warns of what was done other than asked."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(NOT_THE_USER):  # R is no frame
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)
