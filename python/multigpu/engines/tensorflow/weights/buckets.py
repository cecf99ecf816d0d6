"""pack and unpack: small tensors travel together. A bucket is one transfer per device, of one owner's tensors.

Under mixed precision they travel in the type that is computed with.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.weights.place_locate import locate, stored_dtype
from multigpu.engines.tensorflow.weights.rows import Rows

BUCKET_BYTES = 1 << 20  # so large that its latency no longer counts
NUM_BUCKETS = 16  # of all that is sent, so many that sending overlaps with computing
BUCKETS_OF_OWNER = 2  # and so many that those of different owners take turns
AT_ONCE = 8  # tensors that are concatenated, or split


class Types(NamedTuple):
    """The types in which a tensor is stored, in which it travels, and in which its gradient travels back.

    Where that gradient may be rows of it, it travels alone, and adds up in this way. Where it is no slope but the new
    value, it does not add up: the largest one counts, as when Keras accumulates gradients.
    """

    stored: tf.DType
    sent: tf.DType
    reduced: tf.DType
    rows: Rows | None = None
    is_new_value: bool = False


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
    travels = [known.get(id(v), as_stored(v))._replace(is_new_value=is_overwritten(v)) for v in variables]
    return make_buckets([(locate(v), how, tuple(v.shape)) for v, how in zip(variables, travels, strict=True)])


def is_overwritten(variable: keras.Variable) -> bool:
    """Return whether an optimizer takes the gradient of a variable for its new value, as that of a scale of float8."""
    return getattr(variable, "overwrite_with_gradient", False)


def as_stored(variable: keras.Variable) -> Types:
    """A variable that travels as it is."""
    return Types(*[stored_dtype(variable)] * 3)


def make_buckets(tensors: Sequence[tuple[str, Types, tuple[int, ...]]]) -> list[Bucket]:
    """Groups tensors, given as (owner, types, shape) in the order of use, into buckets; a large one travels alone.

    A bucket is full with 1 MB, or with a sixteenth of all bytes, or with half of what each owner has, where that
    is more. The first layers do not wait for that: the first bucket is full with 1 MB.
    """
    sizes = [math.prod(shape) * max(types.sent.size or 0, 1) for _, types, shape in tensors]
    num_buckets = max(NUM_BUCKETS, BUCKETS_OF_OWNER * len({owner for owner, _, _ in tensors}))
    full = max(BUCKET_BYTES, sum(sizes) // num_buckets)
    closed: list[Bucket] = []
    open_buckets: dict[tuple[str, Types], list[int]] = {}

    def close(kind: tuple[str, Types]) -> None:
        members = open_buckets.pop(kind)
        closed.append(Bucket(*kind, tuple(members), tuple(tensors[i][2] for i in members)))

    for index, (owner, types, shape) in enumerate(tensors):
        kind = (owner, types)
        if sizes[index] >= full or types.rows:
            closed.append(Bucket(*kind, (index,), (shape,)))
            continue
        members = open_buckets.setdefault(kind, [])
        members.append(index)
        if sum(sizes[i] for i in members) >= (full if closed else BUCKET_BYTES):
            close(kind)
    for kind in list(open_buckets):
        close(kind)
    return sorted(closed, key=lambda bucket: bucket.members)


def pack(tensors: Mapping[int, tf.Tensor] | Sequence[tf.Tensor], bucket: Bucket) -> tf.Tensor:
    """The members of a bucket as one vector; a member that travels alone keeps its shape."""
    if len(bucket.members) == 1:
        return tensors[bucket.members[0]]
    return _concat([tf.reshape(tensors[number], [-1]) for number in bucket.members])


def _concat(vectors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Vectors as one. For more than 8, TensorFlow's GPU kernel has the host send a table of pointers, and of sizes."""
    axis = 0
    while len(vectors) > AT_ONCE:
        starts = range(0, len(vectors), AT_ONCE)
        vectors = [tf.concat(vectors[start : start + AT_ONCE], axis) for start in starts]
        axis = -1 - axis  # the same one, under its other number: TensorFlow would merge concats along one number
    return tf.concat(vectors, axis)


def open_bucket(buffer: tf.Tensor, bucket: Bucket) -> list[tf.Tensor]:
    """The members of a bucket in their shapes: the inverse of `pack` for one bucket."""
    if len(bucket.members) == 1:
        return [buffer]
    pieces = _split(buffer, [math.prod(shape) for shape in bucket.shapes])
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, bucket.shapes, strict=True)]


def _split(vector: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """The inverse of `_concat`, for the same reason in groups."""
    if len(sizes) <= AT_ONCE:
        return tf.split(vector, sizes)
    each = AT_ONCE ** math.floor(math.log(len(sizes) - 1, AT_ONCE))
    groups = [sizes[start : start + each] for start in range(0, len(sizes), each)]
    parts = tf.split(vector, [sum(group) for group in groups])
    return [piece for part, group in zip(parts, groups, strict=True) for piece in _split(part, group)]


def unpack(
    buffers: Sequence[tf.Tensor], buckets: Sequence[Bucket], whole_numbers_on: str | None = None
) -> list[tf.Tensor]:
    """The inverse of `pack` over all buckets: tensors in their old order.

    Args:
        buffers: one of each bucket.
        buckets: what is in them.
        whole_numbers_on: the device for counters and seeds, where it is not the one around: GPUs cannot split those.
    """
    tensors: dict[int, tf.Tensor] = {}
    for buffer, bucket in zip(buffers, buckets, strict=True):
        apart = whole_numbers_on is not None and not bucket.types.sent.is_floating
        with tf.device(whole_numbers_on) if apart else contextlib.nullcontext():
            tensors.update(zip(bucket.members, open_bucket(buffer, bucket), strict=True))
    return [tensors[number] for number in range(len(tensors))]
