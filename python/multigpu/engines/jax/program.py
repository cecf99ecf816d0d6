"""Trace a step to a program of JAX, which can be read and edited before XLA divides it among the devices."""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from multigpu.engines.jax.layout import along

FEW = 8  # rows that are whole while they are padded, or that are cut from an array that is whole


def trace(
    mesh: Mesh, function: Callable[..., Any], *args: Any, has_gradients: bool = True
) -> tuple[core.ClosedJaxpr, Any]:
    """Return the program of a function for the devices of a mesh, and the structure of its results.

    Args:
        mesh: the devices.
        function: the function to trace.
        *args: its arguments, the last of which is the batch.
        has_gradients: whether gradients that are needed are in the program. Others are not edited.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    rows = {x.shape[0] for x in jax.tree.leaves(args[-1]) if getattr(x, "ndim", 0)}  # of the batch: in good parts
    return edited(program, functools.partial(divisible, mesh, rows, has_gradients)), jax.tree.structure(shapes)


def run(program: core.ClosedJaxpr, structure: Any, *args: Any) -> Any:
    """Run a traced program, usually inside of a larger one."""
    return jax.tree.unflatten(structure, core.jaxpr_as_fun(program)(*jax.tree.leaves(args)))


def edited(part: Any, replacement: Callable[[core.JaxprEqn], Callable[..., jax.Array] | None]) -> Any:
    """Return a program, or parameters with programs, with functions in place of some equations."""
    if isinstance(part, core.Jaxpr):  # from JAX 0.12 on, there is no other class
        return part.replace(eqns=[_edited_equation(equation, replacement) for equation in part.eqns])
    if isinstance(part, core.ClosedJaxpr):
        return part.replace(jaxpr=edited(part.jaxpr, replacement))
    if type(part) in (tuple, list):
        return type(part)(edited(each, replacement) for each in part)
    return part


def _edited_equation(equation: core.JaxprEqn, replacement: Callable[..., Any]) -> core.JaxprEqn:
    if equation.primitive.name == "shard_map":  # in it, each device has its part, which XLA does not divide
        return equation
    equation = equation.replace(params={name: edited(value, replacement) for name, value in equation.params.items()})
    function = replacement(equation)
    if function is None:
        return equation
    [call] = jax.make_jaxpr(jax.jit(function))(*(x.aval for x in equation.invars)).eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars)


def with_marked_gradient(mesh: Mesh, weight: jax.Array) -> jax.Array:
    """Return a weight whose gradient `whole_gradients()` finds in a program."""
    # a constraint that allows everything, which JAX also applies to the gradient
    anything = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * weight.ndim)
    return jax.lax.with_sharding_constraint(weight, NamedSharding(mesh, anything))


def whole_gradients(program: core.ClosedJaxpr, whole: Sharding) -> core.ClosedJaxpr:
    """Return a program whose gradients of weights are added up on all devices, and then divided."""

    def replacement(equation: core.JaxprEqn) -> Callable[..., jax.Array] | None:
        free = equation.params.get("unconstrained_dims", ())
        if not free or len(free) < equation.outvars[0].aval.ndim:
            return None
        return lambda gradient: jax.lax.with_sharding_constraint(gradient, whole)

    return edited(program, replacement)


def divisible(
    mesh: Mesh, rows: Collection[int], has_gradients: bool, equation: core.JaxprEqn
) -> Callable[..., jax.Array] | None:
    """Return a function in place of an equation that XLA would divide wrongly, also if only rows are divided.

    - If rows that are unevenly divided are read at indices of another type than int32, such as those of the gradient of
      a sort, XLA ends the process, because it compares them with an int32 (`Check failed:
      ShapeUtil::IsScalarWithElementType`).
    - Before JAX 0.12, a sum over devices that is divided, and then updated at one index, is wrong: XLA combines two
      slices of it, and all devices but one write another row into their first one.
    - The gradient of a slice is padded. If it has two rows, which end up on two of eight devices, one is lost.
    - If an axis of a Fourier transform is divided, XLA ends the process, unless each part has enough elements
      (`Check failed: size_per_partition % num_partitions == 0`).
    - If elements are cut off by a negative padding along a divided axis, or left out by a slice with steps, its result
      has another shape than XLA expects. If others are put between them, some are lost.
    - If the axis of a cumulative sum is divided, each device adds up all elements for each element.
    - If an axis is divided along which the windows of a convolution or of pooling run, XLA gives wrong numbers, or ends
      the process (`Check failed` of a padding).
    - If rows are groups of a convolution, as in a kernel's gradient of each row by itself, XLA gives wrong numbers.
    - If a reshape merges or splits an axis that is divided unevenly, its result is wrong, or XLA reads beyond the end
      of a list, and the process ends.
    - If an axis is divided along which a reduction runs that is no collective of XLA, such as one with a function of
      the user's, or the largest of complex numbers, XLA ends in an error (`Unsupported reduction computation`).
    - If several devices have the same part of the rows, the gradient of a grouped convolution counts each of them. They
      have it if a layer makes other rows of those of the batch.
    """
    if kept := _axes_to_keep_whole(equation, mesh.size, rows, has_gradients):
        keep = [functools.partial(_whole_along, mesh, axes) for axes in kept]
        if equation.params.get("batch_group_count", 1) > 1:  # the gradient, which adds up rows
            axes = [spec[1] for spec in equation.params["dimension_numbers"][:2]]
            if equation.invars[0].aval.shape[axes[0]] not in rows:
                keep[:2] = [functools.partial(_in_parts, mesh, axis) for axis in axes]

        def along_whole_axes(*inputs: jax.Array) -> Any:
            results = _result(equation, *(each(x) for each, x in zip(keep, inputs, strict=False)))
            return jax.tree.map(keep[-1], results)

        return along_whole_axes
    if not equation.primitive.name.startswith(("gather", "scatter")):
        return None
    read = equation.invars[1].aval
    at_one = equation.primitive.name.startswith("scatter") and math.prod(read.shape[:-1]) == 1
    if not at_one and read.dtype == np.int32:
        return None

    def function(operand: jax.Array, indices: jax.Array, *updates: jax.Array) -> jax.Array:
        # behind barriers, XLA combines neither the operand nor the result with other equations
        apart = jax.lax.optimization_barrier if at_one else jax.numpy.asarray
        return apart(_result(equation, apart(operand), _as_int32(indices), *updates))

    return function


def _axes_to_keep_whole(
    equation: core.JaxprEqn, devices: int, rows: Collection[int], has_gradients: bool
) -> Sequence[Collection[int]]:
    """Return the axes of each input, then of the result, along which windows, transforms and others run."""
    name, params = equation.primitive.name, equation.params
    if name == "conv_general_dilated":
        images, kernel, results = params["dimension_numbers"]
        if params["feature_group_count"] > 1:  # a group may be a row: in gradients of each row by itself
            return [images[1:], kernel, results[1:]]
        return [images[2:], kernel[2:], results[2:]]
    if "window_dimensions" in params:
        axes = [axis for axis, size in enumerate(params["window_dimensions"]) if size > 1]
        return [axes if x.aval.ndim else () for x in (*equation.invars, *equation.outvars[:1])]
    if name == "fft":  # XLA for CPUs ends in an error if it divides other axes than that of rows
        shape = equation.invars[0].aval.shape
        of_batch = len(params["fft_lengths"]) < len(shape) and shape[0] in rows
        return [range(int(of_batch), len(shape))] * 2
    if name == "reshape":
        changed = _axes_that_change(equation.invars[0].aval.shape, equation.outvars[0].aval.shape, devices)
        return [changed, ()] if changed else []  # the result has other axes
    if name == "pad":
        config = enumerate(zip(params["padding_config"], equation.invars[0].aval.shape, strict=True))
        axes = [
            axis
            for axis, ((low, high, between), size) in config
            if min(low, high) < 0 or between or ((low or high) and size <= FEW)
        ]
        return [axes, (), axes] if axes else []
    if name == "slice":
        axes = [axis for axis, step in enumerate(params["strides"] or ()) if step > 1]
        if not has_gradients:
            sizes = enumerate(zip(equation.outvars[0].aval.shape, equation.invars[0].aval.shape, strict=True))
            axes += [axis for axis, (few, all_) in sizes if 1 < few <= FEW and few < all_]
        return [axes] * 2 if axes else []
    if _is_no_collective(equation):
        axes, half = params.get("axes", params.get("dimensions")), max(len(equation.invars) // 2, 1)
        return [*[axes] * half, *[()] * half, ()]  # of operands, of first values, and of results
    return [[params["axis"]]] * 2 if name.startswith("cum") else []


def _is_no_collective(equation: core.JaxprEqn) -> bool:
    """Return whether an equation is a reduction that XLA cannot make over several devices."""
    name, kind = equation.primitive.name, equation.invars[0].aval.dtype if equation.invars else None
    if name in ("reduce_and", "reduce_or"):
        return not np.issubdtype(kind, np.bool_)
    if name in ("reduce_max", "reduce_min"):
        return np.issubdtype(kind, np.complexfloating)
    return name in ("reduce", "reduce_xor")


def _whole_along(mesh: Mesh, axes: Collection[int], x: jax.Array) -> jax.Array:
    """Return an array that is not divided along some axes."""
    if not axes:
        return x
    spec = [None if axis in axes else PartitionSpec.UNCONSTRAINED for axis in range(x.ndim)]
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*spec)))


def _axes_that_change(before: Sequence[int], after: Sequence[int], devices: int) -> Collection[int]:
    """Return the axes that a reshape merges or splits, if the devices do not divide them all, before and after."""
    ranks = min(len(before), len(after))
    first = next((axis for axis in range(ranks) if before[axis] != after[axis]), ranks)
    last = next((axis for axis in range(ranks - first) if before[~axis] != after[~axis]), ranks - first)
    sizes = [*before[first : len(before) - last], *after[first : len(after) - last]]
    return range(first, len(before) - last) if any(size > 1 and size % devices for size in sizes) else []


def _in_parts(mesh: Mesh, axis: int, x: jax.Array) -> jax.Array:
    """Return an array in equal parts along an axis, with zeros at its end."""
    missing = -x.shape[axis] % mesh.size
    if missing:  # on all devices: XLA ends the process if it adds zeros to some parts
        whole = functools.partial(_whole_along, mesh, range(x.ndim))
        zeros = jax.numpy.zeros([*x.shape[:axis], missing, *x.shape[axis + 1 :]], x.dtype)
        x = whole(jax.numpy.concatenate([whole(x), whole(zeros)], axis))
    return jax.lax.with_sharding_constraint(x, along(mesh, axis))


def _as_int32(indices: jax.Array) -> jax.Array:
    """Return indices as int32. Others are out of bounds: no axis is so long."""
    given, wanted = np.iinfo(indices.dtype), np.iinfo(np.int32)
    return jax.numpy.clip(indices, max(given.min, wanted.min), min(given.max, wanted.max)).astype(np.int32)


def _result(equation: core.JaxprEqn, *inputs: jax.Array) -> jax.Array:
    return equation.primitive.bind(*inputs, **equation.params)
