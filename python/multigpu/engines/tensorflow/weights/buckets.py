"""pack and unpack: send small tensors together. A bucket is one transfer per device, of one owner's tensors.

Under mixed precision they are sent in the compute type.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.weights.place_locate import locate, stored_dtype
from multigpu.engines.tensorflow.weights.rows import Rows

BUCKET_BYTES = 1 << 20  # so large that latency is negligible
NUM_BUCKETS = 16  # so many buckets that sending overlaps with computing
BUCKETS_OF_OWNER = 2  # and so many that different owners take turns
AT_ONCE = 8  # number of tensors that are concatenated or split


class Types(NamedTuple):
    """The types in which a tensor is stored, in which it is sent, and in which its gradient is sent back.

    If the gradient may be rows, the tensor is sent alone, and rows are added in this way. If the gradient is not a
    derivative but the new value, gradients are not added: the largest one counts, as when Keras accumulates gradients.
    """

    stored: tf.DType
    sent: tf.DType
    reduced: tf.DType
    rows: Rows | None = None
    is_new_value: bool = False


class Bucket(NamedTuple):
    """Tensors that are sent together: their owner, their types, their numbers and their shapes."""

    owner: str
    types: Types
    members: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the bucket's buffer. A tensor that is sent alone keeps its own."""
        return self.shapes[0] if len(self.shapes) == 1 else (sum(map(math.prod, self.shapes)),)

    @property
    def sent_bytes(self) -> int:
        """The bytes that a replica receives."""
        return sum(map(math.prod, self.shapes)) * self.types.sent.size

    @property
    def reduced_bytes(self) -> int:
        """The bytes of the gradient that a replica sends back."""
        return sum(map(math.prod, self.shapes)) * self.types.reduced.size


def buckets_of(variables: Sequence[keras.Variable], types: Sequence[Types] | None = None) -> list[Bucket]:
    """Return the buckets of variables, which are sent in these types, or otherwise as they are stored."""
    known = types or [as_stored(v) for v in variables]
    travels = [how._replace(is_new_value=v.overwrite_with_gradient) for v, how in zip(variables, known, strict=True)]
    return make_buckets([(locate(v), how, tuple(v.shape)) for v, how in zip(variables, travels, strict=True)])


def as_stored(variable: keras.Variable) -> Types:
    """Return the types of a variable that is sent as it is stored."""
    return Types(*[stored_dtype(variable)] * 3)


def make_buckets(tensors: Sequence[tuple[str, Types, tuple[int, ...]]]) -> list[Bucket]:
    """Group tensors, given as (owner, types, shape) in the order of use, into buckets. A large one is alone.

    A bucket is full at 1 MB, at a sixteenth of all bytes, or at half of the bytes of each owner, whichever is more. So
    that the first layers need not wait, the first bucket is full at 1 MB.
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
    """Return the tensors of a bucket as one vector. A tensor that is sent alone keeps its shape."""
    if len(bucket.members) == 1:
        return tensors[bucket.members[0]]
    return _concat([tf.reshape(tensors[number], [-1]) for number in bucket.members])


def _concat(vectors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Concatenate vectors. For more than 8, TensorFlow's GPU kernel makes the host send tables of pointers."""
    axis = 0
    while len(vectors) > AT_ONCE:
        starts = range(0, len(vectors), AT_ONCE)
        vectors = [tf.concat(vectors[start : start + AT_ONCE], axis) for start in starts]
        axis = -1 - axis  # the same axis, under its other number: TensorFlow would merge concats along the same number
    return tf.concat(vectors, axis)


def open_bucket(buffer: tf.Tensor, bucket: Bucket) -> list[tf.Tensor]:
    """Return the tensors of a bucket in their shapes: the inverse of `pack` for one bucket."""
    if len(bucket.members) == 1:
        return [buffer]
    pieces = _split(buffer, [math.prod(shape) for shape in bucket.shapes])
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, bucket.shapes, strict=True)]


def _split(vector: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """Invert `_concat`, in groups for the same reason."""
    if len(sizes) <= AT_ONCE:
        return tf.split(vector, sizes)
    each = AT_ONCE ** math.floor(math.log(len(sizes) - 1, AT_ONCE))
    groups = [sizes[start : start + each] for start in range(0, len(sizes), each)]
    parts = tf.split(vector, [sum(group) for group in groups])
    return [piece for part, group in zip(parts, groups, strict=True) for piece in _split(part, group)]


def unpack(
    buffers: Sequence[tf.Tensor],
    buckets: Sequence[Bucket],
    open_one: Callable[[tf.Tensor, Bucket], list[tf.Tensor]] = open_bucket,
) -> list[tf.Tensor]:
    """Return all tensors in their old order: the inverse of `pack` over all buckets.

    Args:
        buffers: one buffer for each bucket.
        buckets: the contents of the buffers.
        open_one: how a bucket is opened.
    """
    tensors: dict[int, tf.Tensor] = {}
    for buffer, bucket in zip(buffers, buckets, strict=True):
        sent = bucket.types.sent
        # counters and seeds: GPUs cannot split integers
        with contextlib.nullcontext() if sent.is_floating or sent.is_complex else tf.device("CPU:0"):
            tensors.update(zip(bucket.members, open_one(buffer, bucket), strict=True))
    return [tensors[number] for number in range(len(tensors))]
