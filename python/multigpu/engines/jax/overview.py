"""A table of what each device stores, receives and sends in a training step of a parallel model."""

import math

import jax
import keras

from multigpu.engines.jax.layout import Layout
from multigpu.engines.jax.placement import layout_of
from multigpu.plan.overview import DeviceRow, Overview
from multigpu.plan.plan import Plan


def overview(template: keras.Model, plan: Plan, batch_size: int | None) -> Overview:
    """Return one row per device. Divided weights are gathered for use, and their gradients come back in parts."""
    layout = layout_of(plan)
    optimizer = getattr(template, "optimizer", None)
    held, slots = (
        0 if plan.cpu_relocation else sum(bytes_on_device(variable, layout) for variable in variables)
        for variables in (template.variables, optimizer.variables if optimizer else [])
    )
    moved = moved_in_step(template, layout)
    return Overview(
        DeviceRow(
            device=name,
            replica=number,
            rows=None if batch_size is None else plan.rows(batch_size)[number],
            weights=held,
            slots=slots if optimizer and optimizer.built else None,
            received=moved,
            sent=moved,
            transfers=2 * len(template.trainable_variables),
        )
        for number, name in enumerate(plan.devices)
    )


def moved_in_step(template: keras.Model, layout: Layout) -> int:
    """Return the bytes that a device receives, and sends, in a step: all-gather and reduce-scatter, or all-reduce."""
    trained = sum(num_bytes(tuple(variable.shape), variable) for variable in template.trainable_variables)
    return 2 * trained * (layout.mesh.size - 1) // layout.mesh.size


def bytes_on_device(variable: keras.Variable, layout: Layout) -> int:
    """Return the bytes of a variable that each device stores between steps."""
    return num_bytes(layout.in_step(variable).shard_shape(tuple(variable.shape)), variable)


def num_bytes(shape: tuple[int, ...], variable: keras.Variable) -> int:
    """Return the bytes of an array with this shape and the variable's type."""
    return math.prod(shape) * jax.numpy.dtype(variable.dtype).itemsize
