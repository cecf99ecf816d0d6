"""The template as its own code sees it while it runs in parallel: calls on itself run on all devices.

A class may define its own `fit()`, `train_step()` or `generate()`. Such code is called with an object that shares all
of the template's attributes. The object's class looks up methods in this order:

    first     a call of the model, a step, `compile()`                   → the parallel model
    own       what the template's class defines, as many classes as it has
    last      `super().fit()` and the other verbs in which own code ends   → the parallel model
    Keras     all else, on the template's attributes

So the template itself is never changed, and you can use it alone at the same time.
"""

import inspect
import types
from typing import Any

import keras

from multigpu.base.replaced import wrapped
from multigpu.private_api.class_code import STEPS, VERBS
from multigpu.private_api.hooks import AddsNoMask

SLOT = "_parallel_model_of_multigpu"  # in addition to the template's attributes
OF_THE_LOOP = ("train_function", "test_function", "predict_function")  # one for each model that trains


def redirected_template(parallel: keras.Model, template: keras.Model) -> keras.Model:
    """Return the template with its own code's calls on itself redirected to the parallel model."""
    redirected: keras.Model = object.__new__(_redirected_class(type(template)))
    object.__setattr__(redirected, "__dict__", template.__dict__)
    object.__setattr__(redirected, SLOT, parallel)
    return redirected


def own_step(redirected: keras.Model, step: str) -> Any:
    """Return the template's own step, or Keras' step on the template."""
    return getattr(super(_First, redirected), step)


def parallel_of(model: keras.Layer) -> keras.Layer:
    """Return the parallel model to which a redirected template sends its calls, or any other model itself."""
    return _parallel(model) if isinstance(model, _First) else model


def _redirected_class(kind: type) -> type:
    of_class = {name: staticmethod(getattr(kind, name)) for name in dir(kind) if _is_classmethod(kind, name)}
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": (SLOT,), **of_class}
    return types.new_class(kind.__name__, (_First, kind, _Last), exec_body=lambda body: body.update(names))


def _is_classmethod(kind: type, name: str) -> bool:
    return not name.startswith("__") and isinstance(inspect.getattr_static(kind, name), classmethod)


def _parallel(redirected: keras.Model) -> Any:
    return getattr(redirected, SLOT)


def _beneath(of_keras: Any, self: keras.Model, /, *args: Any, **kwargs: Any) -> Any:
    """Call the parallel model's version of a verb, for `super()` in the template's code."""
    parallel = _parallel(self)
    return getattr(parallel._beneath, of_keras.__name__)(parallel, *args, **kwargs)


def _of_parallel(name: str) -> property:
    return property(lambda self: getattr(_parallel(self), name), lambda self, new: setattr(_parallel(self), name, new))


class _First(AddsNoMask):
    """Methods of a redirected template that come before those of its own class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a new model of the template's class, for `type(self)(...)` in the class's code."""
        return cls.__bases__[1](*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Do nothing: the template's class must not notice this subclass."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The template's class, which files and all other code see."""
        return type(self).__bases__[1]

    activity_regularizer = property(  # replicas add its loss
        lambda self: None, lambda self, new: vars(self).update(activity_regularizer=new)
    )
    __call__ = keras.Layer.__call__  # the replicas call the template's own `call`, if it has one

    @property
    def call(self) -> Any:
        """Run the data-parallel call."""
        return _parallel(self)._call_for_template


for _name in ("compile", "compute_output_spec", "stateless_call", *STEPS, *OF_THE_LOOP):
    setattr(_First, _name, _of_parallel(_name))


class _Last(keras.Model):
    """Methods of a redirected template that replace those of Keras."""

    def rematerialized_call(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the call itself. In a `keras.RematScope`, each replica recomputes its own activations."""
        return call


for _name in VERBS:
    setattr(_Last, _name, wrapped(getattr(keras.Model, _name), _beneath))
