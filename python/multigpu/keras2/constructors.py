"""Arguments of Keras 1 and 2 for models and layers."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.refusal import refuse
from multigpu.base.replaced import wrapped

RENAMED = {"input": "inputs", "output": "outputs"}  # of `keras.Model`
KERAS_1 = {  # arguments of layers → their names since Keras 2
    **{"output_dim": "units", "nb_filter": "filters", "nb_row": "kernel_size", "nb_col": "kernel_size"},
    **{"filter_length": "kernel_size", "border_mode": "padding", "subsample": "strides", "bias": "use_bias"},
    **{"dim_ordering": "data_format", "init": "kernel_initializer", "inner_init": "recurrent_initializer"},
    **{"W_regularizer": "kernel_regularizer", "b_regularizer": "bias_regularizer", "p": "rate"},
    **{"W_constraint": "kernel_constraint", "dropout_W": "dropout", "dropout_U": "recurrent_dropout"},
    "batch_input_shape": "a `keras.Input(batch_shape=...)` before it",
}


def restore() -> None:
    """Make `Model` accept old arguments. Layers raise an error that names the new argument."""
    x = keras.Input((1,))
    keras.Model.__new__ = staticmethod(wrapped(keras.Model.__new__, _renamed))
    functional = type(keras.Model(x, x))
    functional.__init__ = wrapped(functional.__init__, _renamed)
    keras.Layer.__new__ = staticmethod(wrapped(keras.Layer.__new__, _explained))
    keras.layers.Embedding.__init__ = _with_input(keras.layers.Embedding.__init__)
    keras.Variable.__hash__ = lambda self: id(self)  # sets of weights count each weight once


def _renamed(constructor: Callable, /, *args: Any, **kwargs: Any) -> Any:
    both = "input" in kwargs or "output" in kwargs
    return constructor(*args, **{RENAMED.get(name, name) if both else name: kwargs[name] for name in kwargs})


def _explained(constructor: Callable, cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    old = [name for name in kwargs if name in KERAS_1 and name not in inspect.signature(cls.__init__).parameters]
    if old:
        raise refuse(
            f"arguments of Keras 2 or later for `{cls.__name__}`",
            f"`{old[0]}`",
            f"Use {KERAS_1[old[0]] if ' ' in KERAS_1[old[0]] else f'`{KERAS_1[old[0]]}`'}.",
            error=TypeError,
        )
    return constructor(cls, *args, **kwargs)


def _with_input(constructor: Callable) -> Callable:
    """Return the constructor of Embedding that tells its input, so that a Sequential that begins with one is built."""

    @functools.wraps(constructor)
    def wrapper(self: keras.Layer, *args: Any, input_length: Any = None, **kwargs: Any) -> None:
        shape = input_length if isinstance(input_length, list | tuple) else (input_length,)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Do not pass an `input_shape`")
            constructor(self, *args, **{"input_shape": tuple(shape), **kwargs})

    wrapper.__signature__ = inspect.signature(constructor)  # type: ignore[attr-defined]  # Keras reads it here
    return wrapper
