"""pack and unpack: small tensors travel together. A bucket is one transfer per device, of one owner's tensors.

Under mixed precision they travel in the type that is computed with.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.weights.place_locate import locate, stored_dtype

BUCKET_BYTES = 1 << 20  # so large that its latency no longer counts
NUM_BUCKETS = 16  # of all that is sent, so many that sending overlaps with computing


class Types(NamedTuple):
    """The types in which a tensor is stored, in which it travels, and in which its gradient travels back."""

    stored: tf.DType
    sent: tf.DType
    reduced: tf.DType


class Bucket(NamedTuple):
    """Tensors that travel together: the device that owns them, their types, which ones, and how they are shaped."""

    owner: str
    types: Types
    members: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its buffer: a member that travels alone keeps its own."""
        return self.shapes[0] if len(self.shapes) == 1 else (sum(map(math.prod, self.shapes)),)

    @property
    def sent_bytes(self) -> int:
        """Bytes that a replica receives."""
        return sum(map(math.prod, self.shapes)) * self.types.sent.size

    @property
    def reduced_bytes(self) -> int:
        """Bytes of the gradient that a replica gives back."""
        return sum(map(math.prod, self.shapes)) * self.types.reduced.size


def buckets_of(variables: Sequence[keras.Variable], types: Mapping[int, Types] | None = None) -> list[Bucket]:
    """How these variables travel from their owners: in the types given by id, or else as they are stored."""
    known = types or {}
    stored = [Types(*[stored_dtype(variable)] * 3) for variable in variables]
    return make_buckets(
        [
            (locate(v), known.get(id(v), as_stored), tuple(v.shape))
            for v, as_stored in zip(variables, stored, strict=True)
        ]
    )


def make_buckets(tensors: Sequence[tuple[str, Types, tuple[int, ...]]]) -> list[Bucket]:
    """Groups tensors, given as (owner, types, shape), into buckets; a large one travels alone.

    A bucket is full with 1 MB, or with a sixteenth of all bytes where that is more.
    """
    sizes = [math.prod(shape) * max(types.sent.size or 0, 1) for _, types, shape in tensors]
    full = max(BUCKET_BYTES, sum(sizes) // NUM_BUCKETS)
    buckets: list[Bucket] = []
    open_buckets: dict[tuple[str, Types], list[int]] = {}
    filled: dict[tuple[str, Types], int] = {}

    def close(kind: tuple[str, Types]) -> None:
        members = open_buckets.pop(kind)
        filled.pop(kind)
        buckets.append(Bucket(*kind, tuple(members), tuple(tensors[i][2] for i in members)))

    for index, (owner, types, shape) in enumerate(tensors):
        kind, size = (owner, types), sizes[index]
        if size >= full:
            buckets.append(Bucket(*kind, (index,), (shape,)))
            continue
        open_buckets.setdefault(kind, []).append(index)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= full:
            close(kind)
    for kind in list(open_buckets):
        close(kind)
    return buckets


def pack(tensors: Mapping[int, tf.Tensor] | Sequence[tf.Tensor], bucket: Bucket) -> tf.Tensor:
    """The members of a bucket as one vector; a member that travels alone keeps its shape."""
    if len(bucket.members) == 1:
        return tensors[bucket.members[0]]
    return tf.concat([tf.reshape(tensors[number], [-1]) for number in bucket.members], axis=0)


def open_bucket(buffer: tf.Tensor, bucket: Bucket) -> list[tf.Tensor]:
    """The members of a bucket in their shapes: the inverse of `pack` for one bucket."""
    if len(bucket.members) == 1:
        return [buffer]
    pieces = tf.split(buffer, [math.prod(shape) for shape in bucket.shapes])
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, bucket.shapes, strict=True)]


def unpack(buffers: Sequence[tf.Tensor], buckets: Sequence[Bucket]) -> list[tf.Tensor]:
    """The inverse of `pack` over all buckets: tensors in their old order."""
    tensors: dict[int, tf.Tensor] = {}
    for buffer, bucket in zip(buffers, buckets, strict=True):
        tensors.update(zip(bucket.members, open_bucket(buffer, bucket), strict=True))
    return [tensors[number] for number in range(len(tensors))]
