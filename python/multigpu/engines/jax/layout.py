"""Lay out arrays: divided among the devices of a mesh or copied to each, in device memory or on the host."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

SMALLEST = 2048  # number of elements from which dividing an array pays: latency costs more for smaller ones


@dataclass(frozen=True)
class Layout:
    """How arrays are laid out.

    Attributes:
        mesh: the devices of all workers that do this work.
        own: the devices of this worker, among which large variables are divided: each worker has whole ones.
        on_host: whether variables are in host memory between steps.
    """

    mesh: Mesh
    own: Mesh
    on_host: bool = False

    @cached_property
    def alone(self) -> "Layout":
        """The layout of what this worker does without the others."""
        return replace(self, mesh=self.own)

    @cached_property
    def copied(self) -> NamedSharding:
        """The layout of a copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @cached_property
    def divided(self) -> NamedSharding:
        """The layout of rows in as many parts as devices. Inside of a step, the parts may differ in size."""
        return along(self.mesh, 0)

    def rows(self, count: int) -> NamedSharding:
        """Return the layout of rows in parts of one size, one per device. If this is impossible, each has all of them.

        Fewer parts, each on several devices, would be faster. But XLA counts their copies in the gradient of a grouped
        convolution, which is then a multiple of the correct one.
        """
        return self.copied if count % self.mesh.size else self.divided

    def in_step(self, variable: Any) -> NamedSharding:
        """Return the layout of a variable's value while a step runs."""
        shape = tuple(variable.shape)
        if math.prod(shape) < SMALLEST or self.own.size == 1:
            return self.copied
        whole = [axis for axis, size in enumerate(shape) if size % self.own.size == 0]
        if whole:
            axis = max(whole, key=lambda axis: (shape[axis], axis))
            return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, self.own.axis_names))
        return NamedSharding(self.mesh, PartitionSpec(*_divide(shape, self.own)))

    def at_rest(self, variable: Any) -> NamedSharding:
        """Return the layout of a variable's value between steps."""
        sharding = self.in_step(variable)
        return sharding.with_memory_kind("pinned_host") if self.on_host and variable.ndim else sharding

    def place(self, state: Any) -> Any:
        """Return values in their layout between steps, each in separate memory: Keras' averages share the weights'."""
        seen: set[int] = set()

        def place_one(value: Any) -> jax.Array:
            fresh = id(value) not in seen
            seen.add(id(value))
            # JAX crashes on a deleted array, where NumPy raises an error
            return put(value if fresh and not value.is_deleted() else np.array(value), self.at_rest(value))

        return jax.tree.map(place_one, state)


def _divide(shape: Sequence[int], mesh: Mesh) -> list[tuple[str, ...] | None]:
    """Divide the largest possible axis of the array by each axis of the mesh."""
    left, spec = list(shape), [()] * len(shape)  # type: list[int], list[tuple[str, ...]]
    for name, size in mesh.shape.items():
        able = [axis for axis, length in enumerate(left) if length and length % size == 0]
        if able:
            axis = max(able, key=lambda axis: (left[axis], axis))
            left[axis] //= size
            spec[axis] += (name,)
    return [names or None for names in spec]


def along(mesh: Mesh, axis: int) -> NamedSharding:
    """Return the layout of an array that is divided along an axis, among all devices."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, mesh.axis_names))


def on_mesh(value: jax.Array, mesh: Mesh) -> jax.Array:
    """Return an array of this worker's memory as one of all workers, or the other way round."""
    if value.sharding.mesh == mesh:
        return value
    sharding = NamedSharding(mesh, value.sharding.spec, memory_kind=value.sharding.memory_kind)
    return jax.make_array_from_single_device_arrays(value.shape, sharding, [x.data for x in value.addressable_shards])


def without_context_mesh() -> contextlib.AbstractContextManager[Any]:
    """Return a scope without the mesh that a user has set, which need not have the devices of the model."""
    if jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    set_mesh = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh  # before JAX 0.7, the second
    return set_mesh(Mesh(np.empty((), object), ()))


def gathered(weights: Any, layout: Layout) -> Any:
    """Return weights as copies on all devices, inside of a step."""
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, layout.copied), weights)


def put(value: Any, sharding: Sharding) -> jax.Array:
    """Return an array in a layout. It is the same object if it has this layout already."""
    if isinstance(value, jax.Array) and value.sharding == sharding:
        return value
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    value = np.asarray(value)  # each of several processes passes its part of the common array
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
