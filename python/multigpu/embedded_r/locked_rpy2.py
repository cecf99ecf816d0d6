"""rpy2's own calls of R, with Python's lock held: what `%%R` needs beside a reticulate that does not ask for the lock."""

import ctypes
import functools
from typing import Any


class LockedLibrary:
    """R's library as rpy2 has it, of which each function holds Python's lock while it runs.

    Args:
        library: the library, made by cffi.
        ffi: what made it.
    """

    def __init__(self, library: Any, ffi: Any) -> None:
        vars(self).update(_library=library, _ffi=ffi, _functions={})

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            member = getattr(self._library, name)
            if not callable(member):
                return member  # a variable of R, such as R_GlobalEnv, or a function of rpy2 that R calls
            self._functions[name] = locked(self._ffi.addressof(self._library, name), self._ffi)
        return self._functions[name]

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._library, name, value)


def locked(function: Any, ffi: Any) -> Any:
    """A function of cffi, called by `ctypes`, which keeps Python's lock."""
    signature = ffi.typeof(function).item if ffi.typeof(function).kind == "pointer" else ffi.typeof(function)
    prototype = ctypes.PYFUNCTYPE(_type_of(signature.result, ffi), *[_type_of(kind, ffi) for kind in signature.args])
    call = prototype(int(ffi.cast("uintptr_t", function)))

    @functools.wraps(call, assigned=(), updated=())
    def with_lock(*arguments: Any) -> Any:
        result = call(*[_argument(each, kind, ffi) for each, kind in zip(arguments, signature.args, strict=True)])
        return ffi.cast(signature.result, result or 0) if signature.result.kind == "pointer" else result

    return with_lock
