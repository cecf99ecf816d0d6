"""Trace a step to a program of JAX, which can be read and edited before XLA divides it among the devices."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

LOOPS = ("scan", "while")


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """Return the program of a function, and the structure of its results."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return with_signed_indices(program), jax.tree.structure(shapes)


def run(program: core.ClosedJaxpr, structure: Any, *args: Any) -> Any:
    """Run a traced program, usually inside of a larger one."""
    return jax.tree.unflatten(structure, core.jaxpr_as_fun(program)(*jax.tree.leaves(args)))


def has(program: Any, *names: str) -> bool:
    """Return whether a program, or an inner one, has an operation with one of these names."""
    return any(
        equation.primitive.name in names or any(has(inner, *names) for inner in _inside(equation))
        for equation in getattr(program, "jaxpr", program).eqns
    )


def _inside(equation: core.JaxprEqn) -> list[Any]:
    """Return the programs that an operation runs, such as the body of a loop."""
    kinds = (core.ClosedJaxpr, core.Jaxpr)
    found = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda each: isinstance(each, kinds))
    return [each for each in found if isinstance(each, kinds)]


def with_signed_indices(part: Any) -> Any:
    """Return a program, or parameters with programs, in which no index is an unsigned integer.

    The gradient of a sort has unsigned indices. If its rows are unevenly divided, XLA ends the process, because it
    compares them with a signed number (`Check failed: ShapeUtil::IsScalarWithElementType`).
    """
    if isinstance(part, core.Jaxpr):  # from JAX 0.12 on, there is no other class
        return part.replace(eqns=[new for equation in part.eqns for new in _signed(equation)])
    if isinstance(part, core.ClosedJaxpr):
        return part.replace(jaxpr=with_signed_indices(part.jaxpr))
    if type(part) in (tuple, list):
        return type(part)(map(with_signed_indices, part))
    return part


def _signed(equation: core.JaxprEqn) -> list[core.JaxprEqn]:
    """Return the equation, after one that converts its indices if they are unsigned."""
    takes_indices = equation.primitive.name.startswith(("gather", "scatter"))
    if not (takes_indices and np.issubdtype(equation.invars[1].aval.dtype, np.unsignedinteger)):
        params = {name: with_signed_indices(value) for name, value in equation.params.items()}
        return [equation.replace(params=params)]
    operand, indices, *updates = equation.invars
    convert = jax.make_jaxpr(lambda x: jax.lax.convert_element_type(x, np.int32))(indices.aval).eqns[0]
    convert = convert.replace(invars=[indices])
    return [convert, equation.replace(invars=[operand, *convert.outvars, *updates])]
