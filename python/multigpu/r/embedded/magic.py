"""`%%R` cells in Jupyter: rpy2's magic, with the crossing of this package."""

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from multigpu.base.arguments import shown
from multigpu.r.embedded.conversion import pending
from multigpu.r.embedded.request import Request
from multigpu.r.embedded.session import started_r

FROM_PYTHON = "multigpu:::from_python()"
TO_PYTHON = "multigpu:::to_python"
VECTORS = ("List", "Float", "Int", "Bool", "Str")
OF_PYTHON = {"python.builtin.object", "keras_training_history", "function"}
OURS = OF_PYTHON | {"list", "matrix", "array", "numeric", "integer", "logical", "character"}  # not factors, data frames


def add_magic(shell: Any) -> None:
    """Adds `%R` and `%%R` to a shell."""
    if not callable(getattr(shell, "register_magics", None)) or isinstance(shell, type):
        raise ValueError(
            f"Expected `shell` to be IPython's. Received: shell={shown(shell)}. Use `%load_ext multigpu.embedded_r`."
        )
    started_r()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of pandas, which it would like, and of reticulate, which is here on purpose
        rmagic = importlib.import_module("rpy2.ipython.rmagic")
    magics = rmagic.RMagics(shell)
    options = getattr(magics, "options", magics)  # where rpy2 3.6 keeps what 3.5 has in the object itself
    options.converter = crossing_rules(options.converter)
    shell.register_magics(magics)


def crossing_rules(template: Any) -> Any:
    """rpy2's rules, and ours for all that crosses with `run()`."""
    rinterface = importlib.import_module("rpy2.rinterface")
    rules = importlib.import_module("rpy2.robjects.conversion").Converter("multigpu", template=template)

    def to_r(value: Any) -> Any:
        if hasattr(value, "__sexp__"):  # of R already
            return value
        return _cross(Request(value), lambda: rinterface.evalr(FROM_PYTHON))

    def to_python(value: Any) -> Any:
        if not crosses(value):
            return template.rpy2py(value)
        request = Request(None)
        _cross(request, lambda: rinterface.evalr(TO_PYTHON)(value))
        return request.reply()

    for kind in (object, np.ndarray, list, FunctionType):  # the last rpy2 would call without their errors
        rules.py2rpy.register(kind, to_r)
    for name in ("SexpClosure", "SexpEnvironment", *(f"{kind}SexpVector" for kind in VECTORS)):
        rules.rpy2py.register(getattr(rinterface, name), to_python)
    rules.rpy2py.register(type(rinterface.NULL), lambda value: None)
    return rules


def crosses(value: Any) -> bool:
    """Return whether a value of R is one that rpy2 would not bring to Python as this package does."""
    return not OURS.isdisjoint(value.rclass)


def _cross(request: Request, carry: Callable[[], Any]) -> Any:
    pending.append(request)
    try:
        return carry()
    finally:
        pending.pop()
