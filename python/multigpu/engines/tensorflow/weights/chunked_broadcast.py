"""Send a large weight in pieces: one piece to each replica, which passes it on to the others.

Sent whole to every replica, it would leave its owner N − 1 times, and the others would wait. In pieces it leaves once,
one piece to each other replica, which passes it on; its gradient comes back the same way, and is summed in pieces, on
all devices. So no byte more travels. This is how R. Thakur, R. Rabenseifner and W. Gropp broadcast and reduce long
messages ("Optimization of collective communication operations in MPICH", 2005).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense
from multigpu.engines.tensorflow.weights.buckets import Bucket

OUTSIZED = 1.5  # times a device's share
WORTH_CUTTING = {"CPU": 16 << 20, "GPU": 1 << 17}  # bytes: below, cutting and joining cost more than they spare


def is_chunked(bucket: Bucket, buckets: Sequence[Bucket], devices: Sequence[str]) -> bool:
    """Whether a bucket goes out in pieces: its owner would else send more than others, who cannot make up for it.

    It is compared with a device's share of all that is left, once larger ones are cut. With two replicas, pieces would
    spare nothing; and rows are few. Gradients of pieces add up on their way, which new values do not.
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
    """Of the transfers in which a bucket reaches every replica, those that begin or end at `device`.

    Its gradient takes the same ones backward.
    """
    others = receivers(bucket, devices)
    to_each = [(bucket.owner, each) for each in others]
    chunked = is_chunked(bucket, buckets, devices)
    passed_on = [(one, another) for one in others for another in others if one != another] if chunked else []
    share = 1 / len(others) if chunked else 1.0
    return [Transfer(*ends, share) for ends in to_each + passed_on if device in ends]


def receivers(bucket: Bucket, devices: Sequence[str]) -> list[str]:
    """The devices of all replicas but of one that is beside the owner, which has the bucket anyway."""
    return [device for device in devices if device != bucket.owner]


def cut(buffer: tf.Tensor, num_pieces: int) -> list[tf.Tensor]:
    """A buffer as flat pieces, whose sizes differ by at most one."""
    size = math.prod(buffer.shape)
    sizes = [size // num_pieces + (piece < size % num_pieces) for piece in range(num_pieces)]
    return tf.split(tf.reshape(buffer, [-1]), sizes)


def join(pieces: Sequence[tf.Tensor], shape: Sequence[int]) -> tf.Tensor:
    """The buffer that was cut."""
    return tf.reshape(tf.concat(list(pieces), axis=0), shape)


def chunked_broadcast(pieces: Sequence[tf.Tensor], bucket: Bucket, devices: Sequence[str]) -> list[tf.Tensor]:
    """The whole buffer on each device, from one piece for each; the gradient of a piece is the sum over devices."""
    stored = bucket.types.stored
    copies = [_copy(piece, device, len(devices), stored) for piece, device in zip(pieces, devices, strict=True)]
    return [_joined([copy[number] for copy in copies], bucket, device) for number, device in enumerate(devices)]


def _copy(piece: tf.Tensor, device: str, num_copies: int, stored: tf.DType) -> list[tf.Tensor]:
    @custom_gradient
    def copied(x: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
        def summed(*gradients: tf.Tensor) -> tf.Tensor:
            with tf.device(device):
                return tf.add_n([tf.cast(gradient, stored) for gradient in gradients])

        return [tf.identity(x)] * num_copies, summed

    with tf.device(device):
        return list(copied(piece))


def _joined(pieces: Sequence[tf.Tensor], bucket: Bucket, device: str) -> tf.Tensor:
    @custom_gradient
    def joined(*xs: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
        def gradient_in_pieces(gradient: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(device):
                return cut(dense(gradient), len(xs))

        return join(xs, bucket.shape), gradient_in_pieces

    with tf.device(device):
        return joined(*pieces)
