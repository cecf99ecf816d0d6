"""Send a large weight in pieces: one piece to each replica, which passes it on to the others.

If the owner sent the whole weight to every replica, it would send it N − 1 times, and the other devices would wait. In
pieces the owner sends it once: one piece to each other replica, which passes it on. The gradient comes back the same
way, and all devices sum pieces of it. The number of bytes stays the same. This is how R. Thakur, R. Rabenseifner and W.
Gropp broadcast and reduce long messages ("Optimization of collective communication operations in MPICH", 2005).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense, with_gradient
from multigpu.engines.tensorflow.weights.buckets import Bucket

OUTSIZED = 1.5  # multiple of a device's share
WORTH_CUTTING = {"CPU": 16 << 20, "GPU": 1 << 17}  # bytes: below this, cutting and joining cost more than they save


def is_chunked(bucket: Bucket, buckets: Sequence[Bucket], devices: Sequence[str]) -> bool:
    """Return whether a bucket is sent in pieces, because its owner would otherwise send more than the others.

    The bucket is compared with a device's share of the rest, after larger buckets are cut. It is not cut with two
    replicas, where pieces save nothing, nor if its gradients are rows, which are few, nor if they are new values, which
    cannot be added on the way.
    """
    if len(devices) <= 2 or bucket.types.rows or bucket.types.is_new_value:
        return False
    larger = [other for other in buckets if other.sent_bytes >= bucket.sent_bytes and not other.types.rows]
    return all(_is_outsized(other, buckets, devices) for other in larger)


def _is_outsized(bucket: Bucket, buckets: Sequence[Bucket], devices: Sequence[str]) -> bool:
    kind = devices[0].partition(":")[0]
    left = sum(other.sent_bytes for other in buckets if other.sent_bytes <= bucket.sent_bytes)
    return bucket.sent_bytes > max(OUTSIZED * left / len(devices), WORTH_CUTTING[kind])


class Transfer(NamedTuple):
    """A transfer of a bucket, or of a share of it, from one device to another."""

    sender: str
    receiver: str
    share: float


def transfers_of(bucket: Bucket, buckets: Sequence[Bucket], devices: Sequence[str], device: str) -> list[Transfer]:
    """Return the transfers of a bucket that begin or end at `device`, of those by which it reaches every replica.

    Its gradient takes the same transfers backward.
    """
    others = receivers(bucket, devices)
    to_each = [(bucket.owner, each) for each in others]
    chunked = is_chunked(bucket, buckets, devices)
    passed_on = [(one, another) for one in others for another in others if one != another] if chunked else []
    share = 1 / len(others) if chunked else 1.0
    return [Transfer(*ends, share) for ends in to_each + passed_on if device in ends]


def receivers(bucket: Bucket, devices: Sequence[str]) -> list[str]:
    """Return the devices of all replicas, except one on the owner's device, which has the bucket already."""
    return [device for device in devices if device != bucket.owner]


def cut(buffer: tf.Tensor, num_pieces: int) -> list[tf.Tensor]:
    """Return a buffer as flat pieces, whose sizes differ by at most one."""
    size = math.prod(buffer.shape)
    sizes = [size // num_pieces + (piece < size % num_pieces) for piece in range(num_pieces)]
    return tf.split(tf.reshape(buffer, [-1]), sizes)


def join(pieces: Sequence[tf.Tensor], shape: Sequence[int]) -> tf.Tensor:
    """Return the buffer that was cut."""
    return tf.reshape(tf.concat(list(pieces), axis=0), shape)


def chunked_broadcast(pieces: Sequence[tf.Tensor], bucket: Bucket, devices: Sequence[str]) -> list[tf.Tensor]:
    """Return the whole buffer on each device, from one piece for each. A piece's gradient is the sum over devices."""
    stored = bucket.types.stored
    copies = [_copy(piece, device, len(devices), stored) for piece, device in zip(pieces, devices, strict=True)]
    return [_joined([copy[number] for copy in copies], bucket, device) for number, device in enumerate(devices)]


def _copy(piece: tf.Tensor, device: str, num_copies: int, stored: tf.DType) -> list[tf.Tensor]:
    def summed(*gradients: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            return tf.add_n([tf.cast(gradient, stored) for gradient in gradients])

    with tf.device(device):
        return list(with_gradient(piece, summed, lambda x: [tf.identity(x)] * num_copies))


def _joined(pieces: Sequence[tf.Tensor], bucket: Bucket, device: str) -> tf.Tensor:
    @custom_gradient
    def joined(*xs: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
        def gradient_in_pieces(gradient: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(device):
                return cut(dense(gradient), len(xs))

        return join(xs, bucket.shape), gradient_in_pieces

    with tf.device(device):
        return joined(*pieces)
