"""Find the attributes that the class of a model defines itself, and those that it inherits from Keras."""

import inspect
from typing import Any

import keras

from multigpu.private_api.layers import is_of_keras

LOOPS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
MAKERS = ("make_train_function", "make_test_function", "make_predict_function")
FILES = ("save", "save_weights", "load_weights")
VERBS = (*LOOPS, *MAKERS, *FILES)  # `super()` in the template's own code calls the parallel model's versions of these
STEPS = ("train_step", "test_step", "predict_step")
NEVER = ("__getattr__", "__del__")  # methods that Python itself calls, which a class may add


def is_stock(kind: type) -> bool:
    """Return whether a class is one that Keras itself makes models of: Sequential, Functional, or a base class."""
    functional = is_of_keras(kind) and kind.__name__ in ("Functional", "Function")
    return functional or kind in keras.Sequential.__mro__


def defined_by_class(kind: type, name: str) -> Any:
    """Return an attribute that a class or its bases outside of Keras define. None if only Keras defines it."""
    owner = next((each for each in kind.__mro__ if name in vars(each)), object)
    return None if is_stock(owner) else vars(owner)[name]


def overridden(kind: type) -> list[str]:
    """Return the names of `keras.Model` that a model's class redefines, and of its own special methods."""
    names = sorted({name for each in kind.__mro__ if not is_stock(each) for name in vars(each)})
    return [name for name in names if defined_by_class(kind, name) is not None and _counts(kind, name)]


def _counts(kind: type, name: str) -> bool:
    if not name.startswith("_"):
        return hasattr(keras.Model, name)
    added = name.startswith("__") and name not in NEVER and not hasattr(keras.Model, name)
    return added and inspect.isfunction(defined_by_class(kind, name))


def assigned_verbs(model: keras.Model) -> list[str]:
    """Return the names of methods that were assigned to one model. Keras itself assigns `build` and `quantize`."""
    by_keras = ("build", "quantize")
    named = [name for name in vars(model) if inspect.isroutine(getattr(keras.Model, name, None))]
    return [name for name in named if name not in (*by_keras, "call", "loss") and callable(vars(model)[name])]


def parallel_parts(model: keras.Model) -> str:
    """Return code for a user whose model's own code calls only some parts of it, by their names."""
    parts = {name: part for name, part in vars(model).items() if isinstance(part, keras.Model)}
    names = [name for name, part in parts.items() if not name.startswith("_") and (part.weights or not part.built)]
    if not names:
        return "Let `train_step` call the model itself, or train it on one device: layers cannot be made parallel."
    if model.built:  # Keras accepts no other parts
        lines = ", ".join(f"`self.{name} = multi_gpu_model({name})`" for name in names)
        return f"Make its parts parallel instead, in `__init__` of the class: {lines}; and train the model as it is."
    lines = ", ".join(f"`model.{name} = multi_gpu_model(model.{name})`" for name in names)
    return f"Make its parts parallel instead, before `compile()`: {lines}; and train the model as it is."
