"""A request of Python to R. R fetches it, and stores its reply in it."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class RError(RuntimeError):
    """An error of R, with R's message. If an error of Python caused it, that is its `__cause__`."""


class RWarning(UserWarning):
    """A warning of R."""


@dataclass
class Request:
    """A request to R: to run code, or to call a function.

    Attributes:
        code: R code, or the name of an R function, or an R function that Python keeps.
        is_call: whether it calls a function.
        unnamed: arguments without a name.
        named: arguments by name. For code, values for these names.
    """

    code: Any
    is_call: bool = False
    unnamed: Sequence[Any] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    _value: Any = None
    _error: BaseException | None = None
    _warnings: list[str] = field(default_factory=list)

    def succeed(self, value: Any) -> None:
        """Store R's result."""
        self._value = value

    def fail(self, message: str, cause: Any = None) -> None:
        """Store R's error, and the error of Python that caused it."""
        self._error = RError(message)
        self._error.__cause__ = cause if isinstance(cause, BaseException) else None

    def interrupt(self) -> None:
        """Store that R was interrupted."""
        self._error = KeyboardInterrupt()

    def warn(self, message: str) -> None:
        """Keep a warning until R has returned: as an error, it would have to pass through R."""
        self._warnings.append(message)

    def say(self, message: str) -> None:
        """Write R's `message()` to stderr."""
        sys.stderr.write(message)

    def reply(self) -> Any:
        """Return R's result, or raise its error."""
        for message in self._warnings:
            warnings.warn(message, RWarning, stacklevel=4)
        if self._error is not None:
            raise self._error
        return self._value
