"""Move variables to their places in the plan, and back."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import keras
import numpy as np

from multigpu.base.refusal import refuse
from multigpu.engines.jax.devices import device_named, host, make_mesh, visible_devices
from multigpu.engines.jax.layout import Layout, put
from multigpu.engines.jax.private_api.divided_weights import has_value, is_divided
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import variables_of


@functools.cache
def layout_of(plan: Plan) -> Layout:
    """Return a plan's layout of arrays, always the same meshes: JAX does not combine two equal ones.

    Raises:
        ValueError: the plan has GPUs and CPUs.
    """
    kinds = sorted({name.split(":")[0] for name in plan.devices})
    if len(kinds) > 1:
        raise refuse(
            "devices of one kind, because on JAX, one program runs on all of them",
            f"{' and '.join(kinds)}, in {', '.join(plan.devices)}",
            "List GPUs only, as in `gpus=['GPU:0', 'GPU:1']`.",
        )
    own = make_mesh(plan.devices, [jax.process_index()])
    mesh = own if jax.process_count() == 1 else make_mesh(plan.devices, range(jax.process_count()))
    memories = {memory.kind for memory in own.devices.flat[0].addressable_memories()}  # before JAX 0.7, a CPU has one
    return Layout(mesh, own, on_host=plan.cpu_relocation and "pinned_host" in memories)


def place_weights(model: keras.Model, plan: Plan) -> None:
    """Move all variables of a model, in place: divided among the devices, or to the CPU's memory."""
    settle(model.variables, plan)


def settle(variables: Sequence[keras.Variable], plan: Plan) -> None:
    """Move variables to where the plan has them outside of `fit` and other methods."""
    if plan.cpu_relocation:
        send_home(variables)
    else:
        place(variables, layout_of(plan).alone)


def place(variables: Iterable[keras.Variable], layout: Layout) -> None:
    """Move variables onto the mesh, in place and with their values."""
    for variable in variables:
        value = variable.value
        if value.is_deleted() or value.sharding != layout.at_rest(
            value
        ):  # JAX crashes on a deleted one, NumPy does not
            # through NumPy: memory shared with an old array would be freed with that array
            variable.assign(put(np.array(value), layout.at_rest(value)))


def send_home(variables: Sequence[keras.Variable], values: Iterable[Any] | None = None) -> None:
    """Move variables, or give them values, on the CPU and bound to no device, as Keras makes them."""
    with jax.default_device(host()):
        for variable, value in zip(variables, values or [variable.value for variable in variables], strict=True):
            variable.assign(jax.numpy.asarray(np.asarray(value)))


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Move variables to devices, or unbound to JAX's default device, where Keras makes them."""
    first = visible_devices()["others"][0]
    for variable, name in destinations:
        value = np.asarray(variable.value)
        variable.assign(jax.numpy.asarray(value) if name == first else jax.device_put(value, device_named(name)))


def bring_plain_home(model: keras.Model) -> None:
    """Move all variables of a plain model to the first device, if parallel models have divided or parted them.

    XLA would divide the steps of the plain model, too, and its partitioner gives wrong gradients of convolutions.
    """
    variables = all_variables(model)
    devices = {frozenset(variable.value.sharding.device_set) for variable in variables if has_value(variable)}
    if len(devices) > 1 or any(map(is_divided, variables)):
        move([(variable, visible_devices()["others"][0]) for variable in variables])


def holders(model: keras.Model) -> list[str]:
    """The devices of this process that hold weights of a model now."""
    held = set().union(*(variable.value.sharding.device_set for variable in model.variables))
    return [name for name in visible_devices()["others"] if device_named(name) in held]


@contextmanager
def on_one_device(template: keras.Model, plan: Plan) -> Iterator[None]:
    """Move the template to the first device, and back after a `with` block."""
    variables = all_variables(template)
    values = [(variable, variable.value) for variable in variables]
    move([(variable, plan.devices[0]) for variable in variables])
    try:
        yield
    finally:
        for variable, value in values:
            variable.assign(value)


def all_variables(model: keras.Model) -> list[keras.Variable]:
    """Return all variables with which a model trains."""
    return [*variables_of(model), *model.metrics_variables]
