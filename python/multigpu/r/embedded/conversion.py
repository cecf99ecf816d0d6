"""Convert values between Python and R: Python's half. R's half, which calls it, is `R/embedded-convert.R`.

Models and all other objects without a counterpart in R are passed by reference: both languages see the same object.
"""

import ctypes
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from multigpu.r.embedded.request import Request

pending: list[Request] = []  # a stack, because R may call Python, which may call R again
_let_go: deque[int] = deque()  # numbers of functions that R may delete
_numbers = itertools.count()


def current() -> Request:
    """Return the request that R has to answer."""
    return pending[-1]


def answering(request: Request, call: Callable[[], Any]) -> Any:
    """Return what a call of R returns, in which R answers a request."""
    pending.append(request)
    try:
        return call()
    finally:
        pending.pop()


class AsItIs:
    """A value that R receives as a Python object, without a copy. R releases it when it collects garbage."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RFunction:
    """A function of R, which R keeps under a number. It receives and returns Python values.

    Args:
        ask: a function that sends a request to R.
    """

    def __init__(self, ask: Callable[[Request], Any]) -> None:
        self._ask = ask
        self.number = next(_numbers)
        weakref.finalize(self, _let_go.append, self.number).atexit = False

    def __call__(self, *unnamed: Any, **named: Any) -> Any:
        """Call the R function.

        Raises:
            RError: R raised an error.
            RuntimeError: the caller is not Python's main thread.
        """
        return self._ask(Request(self, is_call=True, unnamed=unnamed, named=named))


def numbers_let_go() -> list[int]:
    """Return the numbers of R's functions that Python has released since the last call."""
    return [_let_go.popleft() for _ in range(len(_let_go))]


def kind_of(value: Any) -> str:
    """Return the kind of a value, by which it is converted for R."""
    if isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype.kind in "iuf":
        return "array"
    if isinstance(value, keras.callbacks.History):
        return "history"
    if isinstance(value, RFunction):
        return "function"
    if isinstance(value, AsItIs):
        return "as it is"
    if _are_large_integers(value):
        return "large integers"
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return "named list"
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and not _is_vector(value):
        return "list"
    return "other"


def _are_large_integers(value: Any) -> bool:
    """Return whether integers need more than R's 32 bits, which reticulate 1.28 truncates."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(type(each) is int for each in values) and any(abs(each) >= 2**31 for each in values)


def _is_vector(values: Sequence[Any]) -> bool:
    """Return whether a list is a vector in R: it contains only numbers, or only texts."""
    return bool(values) and any(all(type(value) is kind for value in values) for kind in (bool, int, float, str))


# Arrays ---------------------------------------------------------------------------------------------------------------


def storage_of(array: np.ndarray) -> tuple[str, list[float]]:
    """Return the mode and the dimensions of an R array for these numbers. R has no 64-bit integers."""
    is_small = array.dtype.kind in "iu" and np.can_cast(array.dtype, np.int32)
    return "integer" if is_small else "double", [float(size) for size in array.shape]


def copy_into(view: np.ndarray, array: np.ndarray) -> None:
    """Fill an R array that no other code has seen yet, through its view, which is read-only for all others."""
    memory: Any = (ctypes.c_char * view.nbytes).from_address(view.ctypes.data)
    np.copyto(np.ndarray(view.shape, view.dtype, memory, strides=view.strides), array, casting="unsafe")


# Histories ------------------------------------------------------------------------------------------------------------


def make_history(metrics: Mapping[str, Any], epochs: Any, params: Mapping[str, Any] | None) -> keras.callbacks.History:
    """Return Keras' History for a history of R. `epochs` count from 0."""
    history = keras.callbacks.History()
    history.set_params(dict(params or {}))
    history.on_train_begin()
    history.epoch = [int(epoch) for epoch in np.atleast_1d(epochs)]
    history.history = {name: [float(value) for value in np.atleast_1d(values)] for name, values in metrics.items()}
    return history
