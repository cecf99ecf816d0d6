"""Trace a step to a program of JAX, which can be read and edited before XLA divides it among the devices."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.sharding import Sharding

LAST = ("conv_", "dot_general", "pad", "reduce_sum", "reshape", "scatter", "squeeze", "transpose")  # give gradients
FEW = 8  # rows that are padded by an update


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """Return the program of a function, and the structure of its results."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return divisible(program), jax.tree.structure(shapes)


def run(program: core.ClosedJaxpr, structure: Any, *args: Any) -> Any:
    """Run a traced program, usually inside of a larger one."""
    return jax.tree.unflatten(structure, core.jaxpr_as_fun(program)(*jax.tree.leaves(args)))


def divisible(part: Any) -> Any:
    """Return a program, or parameters with programs, without three faults of XLA's division among devices.

    - The gradient of a sort has unsigned indices. If its rows are unevenly divided, XLA ends the process, because it
      compares them with a signed number (`Check failed: ShapeUtil::IsScalarWithElementType`).
    - Before JAX 0.12, a sum over devices that is divided, and then updated at one index, is wrong: XLA combines two
      slices of it, and all devices but one write another row into their first one.
    - The gradient of a slice is padded. If it has two rows, which end up on two of eight devices, one is lost.
    """
    return edited(part, _divisible)


def whole_gradients(program: core.ClosedJaxpr, weights: Iterable[jax.Array], whole: Sharding) -> core.ClosedJaxpr:
    """Return a program whose gradients of weights are added up on all devices, and then divided."""
    shapes = {weight.shape for weight in weights}

    def edit(equation: core.JaxprEqn) -> list[core.JaxprEqn]:
        if not equation.primitive.name.startswith(LAST) or equation.outvars[0].aval.shape not in shapes:
            return [equation]

        def function(*inputs: jax.Array) -> jax.Array:
            return jax.lax.with_sharding_constraint(equation.primitive.bind(*inputs, **equation.params), whole)

        return [_equation(function, equation.invars, equation.outvars)]

    return edited(program, edit)


def edited(part: Any, edit: Callable[[core.JaxprEqn], list[core.JaxprEqn]]) -> Any:
    """Return a program, or parameters with programs, with other equations in place of each."""
    if isinstance(part, core.Jaxpr):  # from JAX 0.12 on, there is no other class
        return part.replace(eqns=[new for equation in part.eqns for new in edit(_with_inner(equation, edit))])
    if isinstance(part, core.ClosedJaxpr):
        return part.replace(jaxpr=edited(part.jaxpr, edit))
    if type(part) in (tuple, list):
        return type(part)(edited(each, edit) for each in part)
    return part


def _with_inner(equation: core.JaxprEqn, edit: Callable[[core.JaxprEqn], list[core.JaxprEqn]]) -> core.JaxprEqn:
    return equation.replace(params={name: edited(value, edit) for name, value in equation.params.items()})


def _divisible(equation: core.JaxprEqn) -> list[core.JaxprEqn]:
    """Return the equation, or others with the same result."""
    if _pads_few(equation):
        return [_equation(functools.partial(_pad_by_update, equation), equation.invars, equation.outvars)]
    if not _takes_indices(equation):
        return [equation]
    operand, indices, *updates = equation.invars
    before = []
    if np.issubdtype(indices.aval.dtype, np.unsignedinteger):
        before = [_equation(lambda x: jax.lax.convert_element_type(x, np.int32), [indices])]
        equation = equation.replace(invars=[operand, *before[0].outvars, *updates])
    if updates and has_one_index(equation):
        equation = _equation(functools.partial(_apart, equation), equation.invars, equation.outvars)
    return [*before, equation]


def _equation(function: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> core.JaxprEqn:
    """Return a function as one equation."""
    [equation] = jax.make_jaxpr(jax.jit(function))(*(x.aval for x in inputs)).eqns
    return equation.replace(invars=list(inputs), outvars=list(outputs) or equation.outvars)


def _takes_indices(equation: core.JaxprEqn) -> bool:
    return equation.primitive.name.startswith(("gather", "scatter"))


def has_one_index(equation: core.JaxprEqn) -> bool:
    """Return whether an equation reads or updates an array at a single index."""
    return _takes_indices(equation) and math.prod(equation.invars[1].aval.shape[:-1]) == 1


def _apart(equation: core.JaxprEqn, operand: jax.Array, *others: jax.Array) -> jax.Array:
    """Run an equation. XLA combines neither its operand nor its result with other equations."""
    result = equation.primitive.bind(jax.lax.optimization_barrier(operand), *others, **equation.params)
    return jax.lax.optimization_barrier(result)


def _pads_few(equation: core.JaxprEqn) -> bool:
    """Return whether an equation only adds elements, before and after a few."""
    if equation.primitive.name != "pad":
        return False
    config = equation.params["padding_config"]
    only_adds = all(low >= 0 and high >= 0 and not between for low, high, between in config)
    few = [
        low and high and size <= FEW for (low, high, _), size in zip(config, equation.invars[0].aval.shape, strict=True)
    ]
    return only_adds and any(few)


def _pad_by_update(equation: core.JaxprEqn, operand: jax.Array, value: jax.Array) -> jax.Array:
    """Pad an array by writing it into a larger one."""
    begins = [low for low, *_ in equation.params["padding_config"]]
    return jax.lax.dynamic_update_slice(jax.numpy.full(equation.outvars[0].aval.shape, value), operand, begins)
