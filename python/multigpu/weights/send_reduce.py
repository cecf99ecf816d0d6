"""send and reduce: weights from their owner to every replica, and gradients back. The gradient of send is reduce."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.cluster.one_worker import OneWorker
from multigpu.private_api.gradients import custom_gradient
from multigpu.weights.buckets import Bucket, open_bucket, pack
from multigpu.weights.chunked_broadcast import chunked_broadcast, cut, is_chunked, join
from multigpu.weights.gradient_structure import GradientStructure
from multigpu.weights.place_locate import memory, read


def send(
    variables: Sequence[keras.Variable],
    buckets: Sequence[Bucket],
    devices: Sequence[str],
    structure: GradientStructure,
    workers: OneWorker,
) -> list[list[tf.Tensor]]:
    """Values of variables for each replica; differentiating them reduces what comes back.

    Args:
        variables: what is sent.
        buckets: how it travels.
        devices: where the replicas are.
        structure: filled by the replicas' backward pass, which comes before. A variable that is not connected gets no
            gradient, and a table gets the rows of all replicas, both as on one device.
        workers: over which gradients are reduced.

    Returns:
        One list of buffers per replica, one buffer per bucket, to be unpacked on its device.
    """
    per_bucket = []
    for position, bucket in enumerate(buckets):
        in_pieces = is_chunked(bucket, buckets, len(devices))
        reduction = _Reduction(bucket, str(position), in_pieces, structure, workers)
        sent = _send_bucket(variables, bucket, len(devices), in_pieces, reduction)
        per_bucket.append(chunked_broadcast(sent, bucket, devices) if in_pieces else sent)
    return [[buffers[replica] for buffers in per_bucket] for replica in range(len(devices))]


def arrive(buffer: tf.Tensor, bucket: Bucket) -> tf.Tensor:
    """A buffer on its replica's device, in the type that was stored; its gradient leaves in the type of the bucket."""
    stored, sent, reduced = bucket.types
    if sent == reduced == stored:
        return buffer

    @custom_gradient
    def widened(x: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
        return tf.cast(x, stored), lambda upstream: tf.cast(upstream, reduced)

    return widened(buffer)


def send_once(variables: Sequence[keras.Variable], buckets: Sequence[Bucket]) -> list[tf.Tensor]:
    """Values of variables for all replicas alike, without a gradient: the state."""
    buffers = []
    for bucket in buckets:
        with tf.device(bucket.owner):
            buffers.append(pack({number: _constant(read(variables[number])) for number in bucket.members}, bucket))
    return buffers


def _constant(x: tf.Tensor) -> tf.Tensor:
    return tf.stop_gradient(x) if x.dtype.is_floating else x


def _send_bucket(
    variables: Sequence[keras.Variable], bucket: Bucket, num_replicas: int, in_pieces: bool, reduction: "_Reduction"
) -> list[tf.Tensor]:
    """A copy of the bucket for every replica, or a piece for each."""
    number_of = {memory(variables[number]): number for number in bucket.members}

    # The variables are read inside, not passed: only so can TensorFlow take rows of a table for a gradient.
    @custom_gradient
    def fan_out():  # noqa: ANN202  # as `tf.custom_gradient` has it
        sent = {number: tf.cast(read(variables[number]), bucket.types.sent) for number in bucket.members}
        buffer = pack(sent, bucket)

        def reduce(*gradients: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> tuple[list, list]:
            with tf.device(bucket.owner):
                total = reduction.of(gradients)
            return [], [total[number_of[memory(v)]] for v in variables]

        return cut(buffer, num_replicas) if in_pieces else [buffer] * num_replicas, reduce

    with tf.device(bucket.owner):  # also where the gradient op sits that custom_gradient puts around its results
        return list(fan_out())


class _Reduction(NamedTuple):
    """How the gradients of one bucket come together on its owner."""

    bucket: Bucket
    label: str
    in_pieces: bool
    structure: GradientStructure
    workers: OneWorker

    def of(self, gradients: Sequence[tf.Tensor]) -> dict[int, tf.Tensor | tf.IndexedSlices | None]:
        """The gradient of each member: summed over the replicas, and then over the workers."""
        stored = [tf.cast(gradient, self.bucket.types.stored) for gradient in gradients]
        summed = join(stored, self.bucket.shape) if self.in_pieces else tf.add_n(stored)
        if any(number in self.structure.connected - self.structure.rows.keys() for number in self.bucket.members):
            summed = self.workers.gradient(summed, self.bucket.owner, self.label)
        total = dict(zip(self.bucket.members, open_bucket(summed, self.bucket), strict=True))
        return {number: self._noted(gradient, number) for number, gradient in total.items()}

    def _noted(self, gradient: tf.Tensor, number: int) -> tf.Tensor | tf.IndexedSlices | None:
        if number in self.structure.rows:
            rows = self.structure.all_rows(number)
            return self.workers.rows(rows, self.bucket.owner, f"{self.label} {number}")
        return gradient if number in self.structure.connected else None
