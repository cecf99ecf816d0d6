"""Give functions that JAX traces or differentiates whole weights: of a template by itself, or of a user's own loop.

XLA divides what reads divided weights, and its partitioner has faults: it gives wrong gradients of convolutions, for
example. Steps of a parallel model are edited against them; what others trace is not.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import keras
from jax.extend import core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from multigpu.base.replaced import set_to
from multigpu.engines.jax.program import with_marked_gradient

_of_keras = keras.Variable.value
_divided: ContextVar[bool] = ContextVar("whether weights are read as they are divided", default=False)
_marked_on: ContextVar[Mesh | None] = ContextVar("the mesh on which gradients of weights are marked", default=None)
_trace = getattr(core, "get_opaque_trace_state", None) or jax.core.get_opaque_trace_state  # before JAX 0.10, the second
_no_trace = _trace()


@contextlib.contextmanager
def divided_weights(marked_on: Mesh | None = None) -> Iterator[None]:
    """In a `with` block, or in a function with this decorator, read weights as they are divided: for edited steps.

    If a mesh is given, their gradients are marked for `whole_gradients()`.
    """
    with set_to(_divided, True), set_to(_marked_on, marked_on):
        yield


def is_traced() -> bool:
    """Return whether JAX traces or differentiates the code that runs now."""
    return _trace() != _no_trace


def is_divided(variable: keras.Variable) -> bool:
    """Return whether a variable is divided among the devices of a parallel model. Keras' loops take its value away."""
    sharding = getattr(variable._value, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not any(sharding.spec):
        return False
    return all(name.startswith("gpus") for name in sharding.mesh.axis_names)  # as `make_mesh` names them


def has_value(variable: keras.Variable) -> bool:
    """Return whether a variable has a value. Keras' loops take it away while they run, and steps its memory."""
    return variable._value is not None and not variable._value.is_deleted()


def forget_state(model: keras.Model) -> None:
    """Tell Keras' loops that all variables have their values. Otherwise, callbacks would give them older ones."""
    model._jax_state, model._jax_state_synced = None, True


def _value(variable: keras.Variable) -> jax.Array:
    """The current value of the variable. Inside of a traced function, it is whole on each of its devices."""
    value = _of_keras.fget(variable)
    if (mesh := _marked_on.get()) and variable.trainable and value.ndim:
        return with_marked_gradient(mesh, value)
    if _divided.get() or not is_divided(variable) or not is_traced():
        return value
    return jax.lax.with_sharding_constraint(value, NamedSharding(variable._value.sharding.mesh, PartitionSpec()))


keras.Variable.value = property(_value)  # of all variables
