"""send and reduce: weights from their owner to every replica, and gradients back. The gradient of send is reduce.

Small tensors travel packed: one parcel is one transfer per device, of tensors with the same owner and type. Under mixed
precision they travel in the type that is computed with.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.gradient_notes import GradientNotes
from multigpu.place_locate import locate, memory, read, stored_dtype

PARCEL_BYTES = 1 << 20  # large enough that its latency no longer counts, small enough to overlap with computing


class Types(NamedTuple):
    """The types in which a tensor is stored, in which it travels, and in which its gradient travels back."""

    stored: tf.DType
    sent: tf.DType
    reduced: tf.DType


class Parcel(NamedTuple):
    """Tensors that travel together: the device that owns them, their types, which ones, and how they are shaped."""

    owner: str
    types: Types
    members: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Numbers in the parcel."""
        return sum(map(math.prod, self.shapes))


def parcels_of(variables: Sequence[keras.Variable], types: Mapping[int, Types] | None = None) -> list[Parcel]:
    """How these variables travel from their owners: in the types given by id, or else as they are stored."""
    known = types or {}
    stored = [Types(*[stored_dtype(variable)] * 3) for variable in variables]
    return make_parcels(
        [
            (locate(v), known.get(id(v), as_stored), tuple(v.shape))
            for v, as_stored in zip(variables, stored, strict=True)
        ]
    )


def make_parcels(tensors: Sequence[tuple[str, Types, tuple[int, ...]]]) -> list[Parcel]:
    """Groups tensors, given as (owner, types, shape), into parcels; a large one travels alone."""
    parcels: list[Parcel] = []
    open_parcels: dict[tuple[str, Types], list[int]] = {}
    filled: dict[tuple[str, Types], int] = {}

    def close(kind: tuple[str, Types]) -> None:
        members = open_parcels.pop(kind)
        filled.pop(kind)
        parcels.append(Parcel(*kind, tuple(members), tuple(tensors[i][2] for i in members)))

    for index, (owner, types, shape) in enumerate(tensors):
        kind = (owner, types)
        size = math.prod(shape) * max(types.sent.size or 0, 1)
        if size >= PARCEL_BYTES:
            parcels.append(Parcel(*kind, (index,), (shape,)))
            continue
        open_parcels.setdefault(kind, []).append(index)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= PARCEL_BYTES:
            close(kind)
    for kind in list(open_parcels):
        close(kind)
    return parcels


def pack(tensors: Mapping[int, tf.Tensor] | Sequence[tf.Tensor], parcel: Parcel) -> tf.Tensor:
    """The members of a parcel as one vector; a member that travels alone keeps its shape."""
    if len(parcel.members) == 1:
        return tensors[parcel.members[0]]
    return tf.concat([tf.reshape(tensors[number], [-1]) for number in parcel.members], axis=0)


def open_parcel(buffer: tf.Tensor, parcel: Parcel) -> list[tf.Tensor]:
    """The members of a parcel in their shapes: the inverse of `pack` for one parcel."""
    if len(parcel.members) == 1:
        return [buffer]
    pieces = tf.split(buffer, [math.prod(shape) for shape in parcel.shapes])
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, parcel.shapes, strict=True)]


def unpack(buffers: Sequence[tf.Tensor], parcels: Sequence[Parcel]) -> list[tf.Tensor]:
    """The inverse of `pack` over all parcels: tensors in their old order."""
    tensors: dict[int, tf.Tensor] = {}
    for buffer, parcel in zip(buffers, parcels, strict=True):
        tensors.update(zip(parcel.members, open_parcel(buffer, parcel), strict=True))
    return [tensors[number] for number in range(len(tensors))]


def send(
    variables: Sequence[keras.Variable], parcels: Sequence[Parcel], num_replicas: int, notes: GradientNotes
) -> list[list[tf.Tensor]]:
    """Values of variables for each replica; differentiating them reduces what comes back.

    Args:
        variables: what is sent.
        parcels: how it travels.
        num_replicas: how many copies leave each owner.
        notes: filled by the replicas' backward pass, which comes before. A variable that is not connected gets no
            gradient, and a table gets the rows of all replicas, both as on one device.

    Returns:
        One list of buffers per replica, one buffer per parcel, to be unpacked on its device.
    """
    per_parcel = [_send_parcel(variables, parcel, num_replicas, notes) for parcel in parcels]
    return [[buffers[replica] for buffers in per_parcel] for replica in range(num_replicas)]


def arrive(buffer: tf.Tensor, parcel: Parcel) -> tf.Tensor:
    """A buffer on its replica's device, in the type that was stored; its gradient leaves in the type of the parcel."""
    stored, sent, reduced = parcel.types
    if sent == reduced == stored:
        return buffer

    @tf.custom_gradient
    def widened(x: tf.Tensor):  # noqa: ANN202  # the protocol of tf.custom_gradient
        return tf.cast(x, stored), lambda upstream: tf.cast(upstream, reduced)

    return widened(buffer)


def send_once(variables: Sequence[keras.Variable], parcels: Sequence[Parcel]) -> list[tf.Tensor]:
    """Values of variables for all replicas alike, without a gradient: the state."""
    buffers = []
    for parcel in parcels:
        with tf.device(parcel.owner):
            buffers.append(pack({number: _constant(read(variables[number])) for number in parcel.members}, parcel))
    return buffers


def _constant(x: tf.Tensor) -> tf.Tensor:
    return tf.stop_gradient(x) if x.dtype.is_floating else x


def _send_parcel(
    variables: Sequence[keras.Variable], parcel: Parcel, num_replicas: int, notes: GradientNotes
) -> list[tf.Tensor]:
    number_of = {memory(variables[number]): number for number in parcel.members}

    # The variables are read inside, not passed: only so can TensorFlow take rows of a table for a gradient.
    @tf.custom_gradient
    def fan_out():  # noqa: ANN202  # the protocol of tf.custom_gradient
        sent = {number: tf.cast(read(variables[number]), parcel.types.sent) for number in parcel.members}
        buffer = pack(sent, parcel)

        def reduce(*gradients: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> tuple[list, list]:
            with tf.device(parcel.owner):
                summed = tf.add_n([tf.cast(gradient, parcel.types.stored) for gradient in gradients])
                total = dict(zip(parcel.members, open_parcel(summed, parcel), strict=True))
                return [], [_noted(total[number_of[memory(v)]], number_of[memory(v)]) for v in variables]

        return [buffer] * num_replicas, reduce

    def _noted(gradient: tf.Tensor, number: int) -> tf.Tensor | tf.IndexedSlices | None:
        if number in notes.rows:
            return notes.all_rows(number)
        return gradient if number in notes.connected else None

    with tf.device(parcel.owner):  # also where the gradient op sits that custom_gradient puts around its results
        return list(fan_out())
