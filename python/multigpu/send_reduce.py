"""send and reduce: weights from their owner to every replica, and gradients back. The gradient of send is reduce.

Small tensors travel packed: one parcel is one transfer per device, of tensors with the same owner and type.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

PARCEL_BYTES = 1 << 20  # large enough that its latency no longer counts, small enough to overlap with computing


class Parcel(NamedTuple):
    """Tensors that travel together: which ones, how they are shaped, and the device that owns them."""

    owner: str
    members: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]


def make_parcels(tensors: Sequence[tuple[str, tf.DType, tuple[int, ...]]]) -> list[Parcel]:
    """Groups tensors, given as (owner, dtype, shape), into parcels; a large one travels alone."""
    parcels: list[Parcel] = []
    open_parcels: dict[tuple[str, tf.DType], list[int]] = {}
    filled: dict[tuple[str, tf.DType], int] = {}

    def close(kind: tuple[str, tf.DType]) -> None:
        members = open_parcels.pop(kind)
        filled.pop(kind)
        parcels.append(Parcel(kind[0], tuple(members), tuple(tensors[i][2] for i in members)))

    for index, (owner, dtype, shape) in enumerate(tensors):
        size = math.prod(shape) * max(dtype.size or 0, 1)
        if size >= PARCEL_BYTES:
            parcels.append(Parcel(owner, (index,), (shape,)))
            continue
        kind = (owner, dtype)
        open_parcels.setdefault(kind, []).append(index)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= PARCEL_BYTES:
            close(kind)
    for kind in list(open_parcels):
        close(kind)
    return parcels


def pack(tensors: Sequence[tf.Tensor], parcel: Parcel) -> tf.Tensor:
    """The members of a parcel as one vector; a member that travels alone keeps its shape."""
    if len(parcel.members) == 1:
        return tensors[parcel.members[0]]
    return tf.concat([tf.reshape(tensors[i], [-1]) for i in parcel.members], axis=0)


def unpack(buffers: Iterable[tf.Tensor], parcels: Sequence[Parcel]) -> list[tf.Tensor]:
    """The inverse of `pack` over all parcels: tensors in their old order and shape."""
    tensors: dict[int, tf.Tensor] = {}
    for buffer, parcel in zip(buffers, parcels, strict=True):
        if len(parcel.members) == 1:
            tensors[parcel.members[0]] = buffer
            continue
        pieces = tf.split(buffer, [math.prod(shape) for shape in parcel.shapes])
        for index, piece, shape in zip(parcel.members, pieces, parcel.shapes, strict=True):
            tensors[index] = tf.reshape(piece, shape)
    return [tensors[index] for index in range(len(tensors))]


def send(
    values: Sequence[tf.Tensor], parcels: Sequence[Parcel], num_replicas: int, connected: set[int]
) -> list[list[tf.Tensor]]:
    """Buffers for each replica; differentiating them reduces what comes back.

    Args:
        values: tensors on their owners.
        parcels: how they travel.
        num_replicas: how many copies leave each owner.
        connected: filled by the replicas' backward pass with the members that the loss depends on. The others get no
            gradient at all, as on one device, so that no optimizer touches them.

    Returns:
        One list of buffers per replica, to be unpacked on its device.
    """
    per_parcel = [_send_parcel(values, parcel, num_replicas, connected) for parcel in parcels]
    return [list(buffers) for buffers in zip(*per_parcel, strict=True)] or [[] for _ in range(num_replicas)]


def _send_parcel(
    values: Sequence[tf.Tensor], parcel: Parcel, num_replicas: int, connected: set[int]
) -> list[tf.Tensor]:
    @tf.custom_gradient
    def fan_out(*members: tf.Tensor):  # noqa: ANN202  # the protocol of tf.custom_gradient
        buffer = pack(dict(zip(parcel.members, members, strict=True)), parcel)

        def reduce(*gradients: tf.Tensor) -> list[tf.Tensor | None]:
            with tf.device(parcel.owner):
                total = tf.add_n(gradients)
                local = parcel._replace(members=tuple(range(len(members))))
                pieces = unpack([total], [local])
            return [piece if index in connected else None for index, piece in zip(parcel.members, pieces, strict=True)]

        return [buffer] * num_replicas, reduce

    with tf.device(parcel.owner):  # also where the gradient op sits that custom_gradient puts around its results
        return fan_out(*(values[index] for index in parcel.members))
