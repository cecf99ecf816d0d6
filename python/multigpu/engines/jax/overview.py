"""A table of what each device stores, receives and sends in a training step of a parallel model."""

import math

import keras

from multigpu.engines.jax.layout import Layout
from multigpu.engines.jax.placement import layout_of
from multigpu.plan.overview import DeviceRow, Overview
from multigpu.plan.plan import Plan


def overview(template: keras.Model, plan: Plan, batch_size: int | None) -> Overview:
    """Return one row per device. Divided weights are gathered for use, and their gradients come back in parts."""
    layout = layout_of(plan)
    optimizer = getattr(template, "optimizer", None)
    slots = optimizer.variables if optimizer is not None and optimizer.built else None
    held = sum(bytes_on_device(variable, layout) for variable in template.variables)
    trained = [num_bytes(variable) for variable in template.trainable_variables]
    # all-gather and reduce-scatter, or all-reduce: a device receives and sends (N - 1) / N of all, twice
    moved = 2 * sum(trained) * (layout.mesh.size - 1) // layout.mesh.size
    rows = plan.rows(batch_size) if batch_size is not None else [None] * len(plan.devices)
    return Overview(
        DeviceRow(
            device=name,
            replica=number,
            rows=rows[number],
            weights=0 if plan.cpu_relocation else held,
            slots=None
            if slots is None
            else 0
            if plan.cpu_relocation
            else sum(bytes_on_device(v, layout) for v in slots),
            received=moved,
            sent=moved,
            transfers=2 * len(trained),
        )
        for number, name in enumerate(plan.devices)
    )


def num_bytes(variable: keras.Variable) -> int:
    """Return the bytes of a whole variable."""
    return variable.value.nbytes


def bytes_on_device(variable: keras.Variable, layout: Layout) -> int:
    """Return the bytes of a variable that each device stores between steps."""
    value = variable.value
    return math.prod(layout.in_step(value).shard_shape(value.shape)) * value.dtype.itemsize
