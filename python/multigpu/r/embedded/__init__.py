"""R inside this Python process: one live model, used from both languages.

R is started once, with the R package multigpu attached. Its reticulate attaches to this Python process, so a Keras
model is the same object on both sides. This needs Linux, R, the R package, and rpy2: `pip install '.[r]'`.

These values are converted, in both directions:

| Python | R | how |
|---|---|---|
| Keras models, layers, optimizers, tensors, other objects | the same object | by reference |
| array of numbers | array | to R: one copy, as R has its own memory and doubles; to Python: a read-only view, no copy |
| `keras.callbacks.History` | training history, with `plot()` and `as.data.frame()` | its numbers |
| function | function | calls cross, errors too |
| number, text, bool, None | vector of length one, NULL | by value |
| list, tuple; dict with text keys | list or vector; named list | each element crosses |

An R vector without dimensions becomes an array with one dimension. R copies it once for this.

Python objects that R has received stay in memory until R collects its garbage: `call("gc")` does this at once.

While R runs, it holds Python's lock. Other Python threads wait, as for any Python code, until R calls Python or ends.
Only Python's main thread can call R.
"""

from typing import Any

from multigpu.base.arguments import check_text
from multigpu.r.embedded.conversion import AsItIs, RFunction
from multigpu.r.embedded.request import Request, RError, RWarning
from multigpu.r.embedded.session import ask, started_r

__all__ = ["AsItIs", "RError", "RFunction", "RWarning", "call", "load_ipython_extension", "run", "start"]


def start() -> None:
    """Start R in this process, with the R package multigpu attached. You need not call it: `run()` starts R, too.

    Raises:
        ImportError: R, rpy2, or one of the R packages reticulate and multigpu is missing or too old. The message names
            the package to install.
        RuntimeError: the caller is not Python's main thread.
    """
    started_r()


def run(code: str, /, **objects: Any) -> Any:
    """Run R code, as a script.

    Args:
        code: R code, of one or more lines.
        objects: values for these names in R's global environment. They stay there, and so does everything that the code
            assigns.

    Returns:
        The value of the last line, as a Python value.

    Raises:
        RError: an error of R, with its message. If it was an error of Python before, that is its `__cause__`.
        ValueError: `code` is not a string.

    Example:
        >>> from multigpu import embedded_r
        >>> embedded_r.run("mean(x) + 1", x=[1, 2, 6])
        4.0
    """
    check_text("code", code, "R code")
    return ask(Request(code, named=objects))


def call(function: str, /, *unnamed: Any, **named: Any) -> Any:
    """Call an R function with Python objects. R keeps no reference to them.

    Args:
        function: name of an R function, such as `"multi_gpu_model"` or `"stats::quantile"`.
        unnamed: arguments without a name.
        named: arguments by name.

    Returns:
        The function's result, as a Python value.

    Raises:
        RError: an error of R, with its message. If it was an error of Python before, that is its `__cause__`.
        ValueError: `function` is not a string.

    Example:
        >>> from multigpu import embedded_r
        >>> embedded_r.call("paste", "one", "process", sep="-")
        'one-process'
    """
    check_text("function", function, "the name of an R function", least=1)
    return ask(Request(function, is_call=True, unnamed=unnamed, named=named))


def load_ipython_extension(shell: Any) -> None:
    """Add rpy2's `%R` and `%%R` to Jupyter, with this module's conversion: `%load_ext multigpu.embedded_r`."""
    from multigpu.r.embedded.magic import add_magic

    add_magic(shell)
