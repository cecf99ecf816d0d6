"""A warning that points at the line of the caller, not into this package."""

import sys
import warnings


def warn(message: str) -> None:
    """Warns of what was done other than asked."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").startswith("multigpu."):
        level += 1
    warnings.warn(message, stacklevel=level + 1)
