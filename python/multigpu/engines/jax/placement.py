"""Variables, moved to where the plan has them, and back home."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import jax
import keras
import numpy as np

from multigpu.engines.jax.devices import device_named, host, make_mesh, visible_devices
from multigpu.engines.jax.layout import Layout, put
from multigpu.plan.plan import Plan


@functools.cache
def layout_of(plan: Plan) -> Layout:
    """How a plan lays out arrays. Two meshes of the same devices would not go together, even if they are equal."""
    alone = jax.process_count() == 1  # else each process has to be able to read all weights, for files
    mesh = make_mesh(plan.devices)
    kinds = {memory.kind for memory in mesh.devices.flat[0].addressable_memories()}  # of a CPU before JAX 0.7 one alone
    return Layout(mesh, on_host=plan.cpu_relocation and "pinned_host" in kinds, sharded=alone)


def place_weights(model: keras.Model, plan: Plan) -> None:
    """Moves all variables of a model, in place: divided among the devices, or into the memory of the CPU."""
    if plan.cpu_relocation:
        send_home(model.variables)
    else:
        place(model.variables, layout_of(plan))


def place(variables: Iterable[keras.Variable], layout: Layout) -> None:
    """Moves variables onto the mesh, in place and with their values."""
    for variable in variables:
        if variable.value.sharding != layout.at_rest(variable.value):
            # through NumPy: memory that is shared with an old array would go when that is given up
            variable.assign(put(np.array(variable.value), layout.at_rest(variable.value)))


def send_home(variables: Iterable[keras.Variable]) -> None:
    """Moves variables to the CPU, bound to no device, as Keras makes them."""
    with jax.default_device(host()):
        for variable in variables:
            variable.assign(jax.numpy.asarray(np.asarray(variable.value)))


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Moves variables to devices: unbound to the one that JAX takes by itself, where Keras makes them."""
    first = visible_devices()["others"][0]
    for variable, name in destinations:
        value = np.asarray(variable.value)
        variable.assign(jax.numpy.asarray(value) if name == first else jax.device_put(value, device_named(name)))


def holders(model: keras.Model) -> list[str]:
    """The devices of this process that hold weights of a model now."""
    held = set().union(*(variable.value.sharding.device_set for variable in model.variables))
    return [name for name in visible_devices()["others"] if device_named(name) in held]


@contextmanager
def on_one_device(template: keras.Model, plan: Plan) -> Iterator[None]:
    """Brings the template home to the first device, and back again."""
    variables = variables_of(template)
    values = [(variable, variable.value) for variable in variables]
    move([(variable, plan.devices[0]) for variable in variables])
    try:
        yield
    finally:
        for variable, value in values:
            variable.assign(value)


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """All variables that a model trains with."""
    optimizer = getattr(model, "optimizer", None)
    slots = optimizer.variables if optimizer is not None else []
    return [*model.variables, *slots, *model.metrics_variables]
