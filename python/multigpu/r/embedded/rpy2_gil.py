"""Hold Python's lock in rpy2's own calls of R, for `%%R` with a reticulate that does not take the lock."""

import atexit
import ctypes
import inspect
from collections.abc import Callable
from typing import Any


def lock_rpy2(openrlib: Any) -> None:
    """Make rpy2 hold Python's lock until Python ends."""
    if isinstance(openrlib.rlib, LockedLibrary):
        return
    unlocked = openrlib.rlib
    openrlib.rlib = LockedLibrary(unlocked, openrlib.ffi)
    atexit.register(setattr, openrlib, "rlib", unlocked)  # what rpy2 frees later needs no functions of Python


class LockedLibrary:
    """R's library as rpy2 uses it, with functions that hold Python's lock while they run.

    Args:
        library: R's library, made by cffi.
        ffi: the cffi that made it.
    """

    def __init__(self, library: Any, ffi: Any) -> None:
        vars(self).update(_library=library, _ffi=ffi)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._library, name)
        if not self._is_function_of_r(member):
            return member
        if inspect.isbuiltin(member):
            member = self._ffi.addressof(self._library, name)
        vars(self)[name] = locked(member, self._ffi)
        return vars(self)[name]

    def _is_function_of_r(self, member: Any) -> bool:
        """Return whether a name is a function of R, not a variable, nor a function of rpy2 that R calls."""
        if inspect.isbuiltin(self._library.R_tryEval):
            return inspect.isbuiltin(member)
        return isinstance(member, self._ffi.CData) and self._ffi.typeof(member).kind == "function"

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._library, name, value)


def locked(function: Any, ffi: Any) -> Callable:
    """Return a function of cffi that `ctypes` calls."""
    signature = ffi.typeof(function)
    prototype = ctypes.PYFUNCTYPE(_ctype(signature.result, ffi), *[_ctype(kind, ffi) for kind in signature.args])
    call = prototype(_address(function, ffi))

    def with_lock(*arguments: Any) -> Any:
        result = call(*[_argument(kind, value, ffi) for kind, value in zip(signature.args, arguments, strict=True)])
        return ffi.cast(signature.result, result or 0) if signature.result.kind == "pointer" else result

    return with_lock


def _ctype(kind: Any, ffi: Any) -> Any:
    if kind.kind == "void":
        return None
    if kind.kind in ("pointer", "function"):
        return ctypes.c_void_p
    if kind.cname == "double":
        return ctypes.c_double
    return {1: ctypes.c_int8, 4: ctypes.c_int, 8: ctypes.c_int64}[ffi.sizeof(kind)]


def _argument(kind: Any, value: Any, ffi: Any) -> Any:
    if kind.kind in ("pointer", "function"):
        return value if isinstance(value, bytes) else _address(value, ffi)
    return float(value) if kind.cname == "double" else int(value)


def _address(pointer: Any, ffi: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))
