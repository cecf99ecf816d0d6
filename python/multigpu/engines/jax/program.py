"""Trace a step to a program of JAX, which can be read and edited before XLA divides it among the devices."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

LOOPS = ("scan", "while")
FEW = 8  # rows that are padded by an update


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """Return the program of a function, and the structure of its results."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return divisible(program), jax.tree.structure(shapes)


def run(program: core.ClosedJaxpr, structure: Any, *args: Any) -> Any:
    """Run a traced program, usually inside of a larger one."""
    return jax.tree.unflatten(structure, core.jaxpr_as_fun(program)(*jax.tree.leaves(args)))


def has(program: Any, *names: str) -> bool:
    """Return whether a program, or an inner one, has an operation with one of these names."""
    return any(equation.primitive.name in names for equation in equations(program))


def equations(program: Any) -> Iterator[core.JaxprEqn]:
    """Return the operations of a program, and of inner ones."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield equation
        for inner in _inside(equation):
            yield from equations(inner)


def _inside(equation: core.JaxprEqn) -> list[Any]:
    """Return the programs that an operation runs, such as the body of a loop."""
    kinds = (core.ClosedJaxpr, core.Jaxpr)
    found = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda each: isinstance(each, kinds))
    return [each for each in found if isinstance(each, kinds)]


def divisible(part: Any) -> Any:
    """Return a program, or parameters with programs, that XLA divides correctly: three of its faults do not occur.

    The gradient of a sort has unsigned indices. If its rows are unevenly divided, XLA ends the process, because it
    compares them with a signed number (`Check failed: ShapeUtil::IsScalarWithElementType`).

    Before JAX 0.12, the update of a single row of an array that was summed over devices and then divided is wrong: all
    devices but one write another row's value into their first row. Two updates are right.

    The gradient of a slice is padded. If it has two rows, which end up on two of eight devices, one is lost.
    """
    if isinstance(part, core.Jaxpr):  # from JAX 0.12 on, there is no other class
        return part.replace(eqns=[new for equation in part.eqns for new in _divisible(equation)])
    if isinstance(part, core.ClosedJaxpr):
        return part.replace(jaxpr=divisible(part.jaxpr))
    if type(part) in (tuple, list):
        return type(part)(map(divisible, part))
    return part


def _divisible(equation: core.JaxprEqn) -> list[core.JaxprEqn]:
    """Return the equation, with its indices converted if they are unsigned, and updated twice if it has one index."""
    if _pads_few(equation):
        return [_equation(functools.partial(_pad_by_update, equation), equation.invars, equation.outvars)]
    if not equation.primitive.name.startswith(("gather", "scatter")):
        params = {name: divisible(value) for name, value in equation.params.items()}
        return [equation.replace(params=params)]
    operand, indices, *updates = equation.invars
    before = []
    if np.issubdtype(indices.aval.dtype, np.unsignedinteger):
        convert = _equation(lambda x: jax.lax.convert_element_type(x, np.int32), [indices])
        before, indices = [convert], convert.outvars[0]
    equation = equation.replace(invars=[operand, indices, *updates])
    if not (updates and is_single(equation)):
        return [*before, equation]
    return [*before, _equation(functools.partial(_update_twice, equation), equation.invars, equation.outvars)]


def _equation(function: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> core.JaxprEqn:
    """Return a function as one equation."""
    [equation] = jax.make_jaxpr(jax.jit(function))(*(x.aval for x in inputs)).eqns
    return equation.replace(invars=list(inputs), outvars=list(outputs) or equation.outvars)


def is_single(equation: core.JaxprEqn) -> bool:
    """Return whether an equation reads or updates an array at a single index."""
    takes_indices = equation.primitive.name.startswith(("gather", "scatter"))
    return takes_indices and math.prod(equation.invars[1].aval.shape[:-1]) == 1


def _pads_few(equation: core.JaxprEqn) -> bool:
    """Return whether an equation only adds elements, around few of them."""
    if equation.primitive.name != "pad":
        return False
    padded = [each for each in zip(equation.params["padding_config"], equation.invars[0].aval.shape, strict=True)]
    only_adds = all(low >= 0 and high >= 0 and not between for (low, high, between), _ in padded)
    return only_adds and any(low and high and size <= FEW for (low, high, _), size in padded)


def _pad_by_update(equation: core.JaxprEqn, operand: jax.Array, value: jax.Array) -> jax.Array:
    """Pad an array by writing it into a larger one."""
    begins = [low for low, *_ in equation.params["padding_config"]]
    return jax.lax.dynamic_update_slice(jax.numpy.full(equation.outvars[0].aval.shape, value), operand, begins)


def _update_twice(equation: core.JaxprEqn, operand: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
    """Update an array at one index, and there once more without an effect."""
    numbers = equation.params["dimension_numbers"]
    window = [updates.shape[axis] for axis in numbers.update_window_dims]
    neutral = {
        "scatter-add": jax.numpy.zeros_like,
        "scatter-sub": jax.numpy.zeros_like,
        "scatter-mul": jax.numpy.ones_like,
    }
    again = neutral.get(equation.primitive.name, lambda x: x)(updates)
    numbers = numbers._replace(
        update_window_dims=tuple(range(1, len(window) + 1)),
        operand_batching_dims=(),
        scatter_indices_batching_dims=(),
        inserted_window_dims=tuple(sorted((*numbers.inserted_window_dims, *numbers.operand_batching_dims))),
    )
    return equation.primitive.bind(
        operand,
        jax.numpy.stack([indices.reshape(-1)] * 2),
        jax.numpy.stack([x.reshape(window) for x in (updates, again)]),
        **{**equation.params, "dimension_numbers": numbers, "unique_indices": False},
    )
