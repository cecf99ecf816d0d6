"""Run the code of the template's class on the parallel model."""

import inspect
from typing import Any

import keras

from multigpu.private_api.class_code import VERBS, defined_by_class, is_stock, overridden


def with_own_code(kind: type, template: keras.Model) -> type:
    """Return a class of parallel models that use the template's own code for every method that it defines."""
    asks_the_template = {name for each in kind.__mro__ if not is_stock(each) for name in vars(each)} - set(VERBS)
    names = [name for name in overridden(type(template)) if name not in asks_the_template]
    if not names:
        return kind
    own = {name: _answered(type(template), name) for name in names}
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "_beneath": kind, **own})


def _answered(kind: type, name: str) -> "Own":
    return OwnProperty(name) if inspect.isdatadescriptor(defined_by_class(kind, name)) else Own(name)


class Own:
    """A method of the parallel model that runs the template's own code, with `redirected`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, parallel: keras.Model | None, kind: type) -> Any:
        """Return the method of the redirected template, or for the class itself, the method of the base class."""
        if parallel is None or "template" not in parallel.__dict__:
            found = (vars(each).get(self._name, self) for each in kind.__mro__)
            return next(each for each in found if not isinstance(each, Own)).__get__(parallel, kind)
        return getattr(parallel.__dict__["_redirected"], self._name)


class OwnProperty(Own):
    """A property that the template's own code computes, and that is set on the template."""

    def __set__(self, parallel: keras.Model, value: Any) -> None:
        """Set the property on the template."""
        if "template" in parallel.__dict__:
            setattr(parallel.__dict__["_redirected"], self._name, value)
