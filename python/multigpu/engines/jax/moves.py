"""Find out whether a program moves numbers along an axis, by other operations than lookups in tables of weights."""

import math
from collections.abc import Generator, Iterable
from typing import Any

import jax
import numpy as np
from jax.extend import core

LOOPS = ("scan", "while")
MOVES = (  # beginnings of names: operations that move elements along an axis, or read others along it
    *("conv_", "cum", "concatenate", "dynamic_", "fft", "gather", "pad", "reduce_window", "rev", "scatter"),
    *("select_and", "slice", "sort", "split", "stack", "unstack", "tile", "top_k", "approx_top_k", "ragged"),
    *("cholesky", "eig", "geq", "hessenberg", "householder", "lu", "ormqr", "qr", "schur", "svd", "tri"),
)
CALLS = ("checkpoint", "closed_call", "cond", "custom_jvp", "custom_vjp", "jit", "pjit", "remat")  # of inner programs
UNCHANGED = ("convert_element_type", "copy", "reshape", "sharding_constraint", "squeeze", "transpose")


class Weight:
    """Stands for a weight of floats, perhaps in another shape or type."""


class Zeros:
    """Stands for an array of zeros."""


def needs_whole_weights(program: core.ClosedJaxpr, weights: int) -> bool:
    """Return whether weights have to be gathered before a program, once, and not where XLA divides the work.

    In a loop, they would be gathered in each turn. Where elements move along an axis, XLA exchanges borders if it
    divides that axis, and it does so to match a divided weight: then gradients are wrong, or shapes do not fit, for
    example of a convolution, an update at one index or a roll of rows that is flattened before a divided Dense layer.
    Lookups in weights are right, except of one index.

    Args:
        program: a step or a call.
        weights: how many of its inputs are weights: the first ones.
    """
    inputs = [Weight() if _is_float(each) else object() for each in program.jaxpr.invars[:weights]]
    looked_up: set[Any] = set()

    def moves(equation: core.JaxprEqn, operand: Any = None, indices: Any = None, *_: Any) -> bool:
        name = equation.primitive.name
        if not name.startswith(MOVES) or not any(map(_is_float, equation.outvars)):
            return name in LOOPS
        if not name.startswith(("gather", "scatter")):
            return True
        lookup, of_one = (indices, equation.invars[0].aval.shape), math.prod(equation.invars[1].aval.shape[:-1]) == 1
        if name == "gather" and isinstance(operand, Weight) and not of_one:
            looked_up.add(lookup)
            return False
        # the gradient of a lookup adds to zeros at the same indices
        return not isinstance(operand, Zeros) or lookup not in looked_up

    return any(moves(equation, *given) for equation, given in operations(program, inputs, {}))


def has(program: Any, *names: str) -> bool:
    """Return whether a program, or an inner one, has an operation with one of these names."""
    return any(equation.primitive.name in names for equation, _ in operations(program, [], {}))


def operations(
    program: Any, inputs: Iterable[Any], known: dict[Any, Any]
) -> Generator[tuple[core.JaxprEqn, list[Any]], None, list[Any]]:
    """Return each operation of a program, and of inner ones, with its inputs: the same object stands for equal values.

    Args:
        program: a program of JAX.
        inputs: objects that stand for its first inputs.
        known: results by operation and inputs.
    """
    jaxpr = getattr(program, "jaxpr", program)
    values = dict(zip(jaxpr.invars, inputs, strict=False))

    def value(read: Any) -> Any:
        return str(read.val) if isinstance(read, core.Literal) else values.setdefault(read, object())

    for equation in jaxpr.eqns:
        given = [value(read) for read in equation.invars]
        yield equation, given
        inner, calls = _inner_programs(equation), equation.primitive.name.startswith(CALLS)
        outputs = [] if inner else _outputs(equation, given, known)
        for each in inner:
            passed = given[-len(each.invars) :] if calls else []  # `cond` reads its first input itself
            results = yield from operations(each, passed, known)
            outputs = results if calls and len(inner) == 1 else []
        values.update(zip(equation.outvars, outputs, strict=False))
    return [value(read) for read in jaxpr.outvars]


def _outputs(equation: core.JaxprEqn, given: list[Any], known: dict[Any, Any]) -> list[Any]:
    """Return objects that stand for the results of an operation without inner programs."""
    name, kind = equation.primitive.name, object
    if name in UNCHANGED and isinstance(given[0], Weight):
        kind = Weight
    elif name == "broadcast_in_dim" and getattr(equation.invars[0], "val", None) == 0:
        kind = Zeros
    numbered = [(name, str(equation.params), *given, number) for number, _ in enumerate(equation.outvars)]
    return [known.setdefault(each, kind()) for each in numbered]


def _inner_programs(equation: core.JaxprEqn) -> list[core.Jaxpr]:
    """Return the programs that an operation runs, such as the body of a loop."""
    kinds = (core.ClosedJaxpr, core.Jaxpr)
    found = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda each: isinstance(each, kinds))
    return [getattr(each, "jaxpr", each) for each in found if isinstance(each, kinds)]


def _is_float(value: Any) -> bool:
    return jax.numpy.issubdtype(value.aval.dtype, np.inexact)
