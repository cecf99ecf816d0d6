"""Check arguments, and show them briefly in errors."""

import inspect
import operator
import os
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from multigpu.base.refusal import refuse

_REPR = reprlib.Repr()  # limits the length, and handles objects whose own `repr()` fails
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdict = 16
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 200


def shown(value: object) -> str:
    """Return a value as it would be written in code, shortened if it is long."""
    return _REPR.repr(value)


def whole_number(value: object) -> int | None:
    """Return a value of Python, numpy or TensorFlow as an int. None if it is not a whole number, or is a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # anything else raises an error
    except Exception:  # each library raises its own error
        return None


def check_whole_number(name: str, value: object, most: int, use: str, what: str = "") -> None:
    """Raise a ValueError unless a value is a whole number from 1 to `most`.

    Args:
        name: of the argument.
        value: of the argument.
        most: the largest number that makes sense.
        use: an example of a correct call or argument.
        what: what is counted, as words to add to the error.
    """
    number = whole_number(value)
    if number is None or not 1 <= number <= most:
        limit = "1 or more" if number is None or number < 1 else f"at most {most:,}"
        raise refuse(f"`{name}` to be a whole number of {limit}{what}", f"{name}={shown(value)}", f"Use `{use}`.")


def check_flags(**flags: object) -> None:
    """Raise a ValueError unless each argument, given by name, is True, False, 1 or 0."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_) and not (isinstance(value, int) and value in (0, 1)):
            raise refuse(
                f"`{name}` to be True or False", f"{name}={shown(value)}", f"Use `{name}=True` or `{name}=False`."
            )


def check_text(name: str, value: object, what: str, least: int = 0) -> None:
    """Raise a ValueError unless a value is valid Unicode text without NUL, of at least `least` letters."""
    text = value.encode(errors="ignore").decode() if isinstance(value, str) else None  # only its Unicode
    if text is None or text != value or len(text) < least or "\0" in text:
        raise refuse(f"`{name}` to be {what}, as text", f"{name}={shown(value)}")


def check_path(name: str, value: object) -> None:
    """Raise a ValueError unless a value can be the path of a file."""
    try:
        path = os.fsencode(value) if isinstance(value, str | os.PathLike) else b""
    except Exception:  # text that is not Unicode, or any error of an object's own `__fspath__()`
        path = b""
    if not path or b"\0" in path:
        raise refuse(f"`{name}` to be the path of a file, as text or `pathlib.Path`", f"{name}={shown(value)}")


def check_custom_objects(value: Any) -> None:
    """Raise a ValueError unless a value is a dict of objects by name."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
        raise refuse(
            "`custom_objects` to be a dict of classes and functions by their names",
            f"custom_objects={shown(value)}",
            "Use `custom_objects={'Own': Own}`.",
        )


def by_name(verb: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a Keras verb, by name."""
    try:
        bound = inspect.signature(verb).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{verb.__name__}() {error}") from None  # the same error as Python's own
    return {**bound.pop("kwargs", {}), **bound}
