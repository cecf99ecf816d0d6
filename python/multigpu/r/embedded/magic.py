"""`%%R` cells in Jupyter: rpy2's magic, with this package's conversion."""

import contextlib
import importlib
import io
import warnings
from types import FunctionType
from typing import Any

import numpy as np

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.r.embedded.conversion import answering
from multigpu.r.embedded.request import Request
from multigpu.r.embedded.session import started_r

FROM_PYTHON = "multigpu:::from_python()"
TO_PYTHON = "multigpu:::to_python"
VECTORS = ("List", "Float", "Int", "Bool", "Str")
OF_PYTHON = {"python.builtin.object", "keras_training_history", "function"}
OURS = OF_PYTHON | {"list", "matrix", "array", "numeric", "integer", "logical", "character"}  # not factors, data frames


def add_magic(shell: Any) -> None:
    """Add `%R` and `%%R` to a shell."""
    if not callable(getattr(shell, "register_magics", None)) or isinstance(shell, type):
        raise refuse("`shell` to be IPython's", f"shell={shown(shell)}", "Use `%load_ext multigpu.embedded_r`.")
    started_r()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # about pandas, which it recommends, and reticulate, which is intended
        rmagic = importlib.import_module("rpy2.ipython.rmagic")
    magics = rmagic.RMagics(shell)
    options = getattr(magics, "options", magics)  # rpy2 3.6 keeps here what 3.5 keeps in the object itself
    options.converter = crossing_rules(options.converter)
    shell.register_magics(magics)


def crossing_rules(template: Any) -> Any:
    """Return rpy2's rules of conversion, and this package's for all values that `run()` converts."""
    rinterface = importlib.import_module("rpy2.rinterface")
    rules = importlib.import_module("rpy2.robjects.conversion").Converter("multigpu", template=template)

    def to_r(value: Any) -> Any:
        if hasattr(value, "__sexp__"):  # an object of R already
            return value
        return answering(Request(value), lambda: rinterface.evalr(FROM_PYTHON))

    def to_python(value: Any) -> Any:
        if not crosses(value):
            return template.rpy2py(value)
        request = Request(None)
        answering(request, lambda: rinterface.evalr(TO_PYTHON)(value))
        return request.reply()

    for kind in (object, np.ndarray, list, FunctionType):  # otherwise rpy2 would call it last, without its errors
        rules.py2rpy.register(kind, to_r)
    for name in ("SexpClosure", "SexpEnvironment", *(f"{kind}SexpVector" for kind in VECTORS)):
        rules.rpy2py.register(getattr(rinterface, name), to_python)
    rules.rpy2py.register(type(rinterface.NULL), lambda value: None)
    return rules


def crosses(value: Any) -> bool:
    """Return whether this package, not rpy2, has to convert a value of R."""
    return not OURS.isdisjoint(value.rclass)
