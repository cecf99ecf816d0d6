"""send and reduce: weights from their owner to every replica, and gradients back. The gradient of send is reduce."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense, with_gradient
from multigpu.engines.tensorflow.weights.buckets import Bucket, open_bucket, pack
from multigpu.engines.tensorflow.weights.chunked_broadcast import chunked_broadcast, cut, is_chunked, join, receivers
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.place_locate import memory, read
from multigpu.engines.tensorflow.weights.rows import Rows, together


def send(
    variables: Sequence[keras.Variable],
    buckets: Sequence[Bucket],
    devices: Sequence[str],
    structure: GradientStructure,
    workers: Reduction,
    label: str = "",
) -> list[list[tf.Tensor]]:
    """Return the values of variables for each replica. Differentiating them reduces the gradients.

    Args:
        variables: the variables to send.
        buckets: the buckets in which they are sent.
        devices: the devices of the replicas.
        structure: filled by the replicas' backward pass, which runs before. A variable that is not connected gets no
            gradient, as on one device.
        workers: the workers over which gradients are reduced.
        label: a name that no other sending in the same call has.

    Returns:
        One list of buffers per replica, one buffer per bucket, to be unpacked on its device.
    """
    per_bucket = []
    for position, bucket in enumerate(buckets):
        in_pieces = receivers(bucket, devices) if is_chunked(bucket, buckets, devices) else []
        per_bucket.append(_Fan(bucket, f"{label}{position}", in_pieces, devices, structure, workers).out(variables))
    return [[buffers[replica] for buffers in per_bucket] for replica in range(len(devices))]


def arrive(buffer: tf.Tensor, bucket: Bucket) -> tf.Tensor:
    """Return a buffer on its replica's device, in its stored type. Its gradient is sent in the bucket's type."""
    stored, sent, reduced, *_ = bucket.types
    if sent == reduced == stored:
        return buffer
    return with_gradient(buffer, lambda upstream: tf.cast(upstream, reduced), lambda x: tf.cast(x, stored))


def send_once(variables: Sequence[keras.Variable], buckets: Sequence[Bucket]) -> list[tf.Tensor]:
    """Return the values of variables for all replicas alike, without a gradient: the state."""
    buffers = []
    for bucket in buckets:
        with tf.device(bucket.owner):
            values = {number: tf.stop_gradient(read(variables[number])) for number in bucket.members}
            buffers.append(pack(values, bucket))
    return buffers


class _Fan(NamedTuple):
    """The way of one bucket from its owner to all replicas, and of its gradients back."""

    bucket: Bucket
    label: str
    in_pieces: Sequence[str]  # the devices to which it is sent in pieces: all other ones, or none
    devices: Sequence[str]  # of the replicas
    structure: GradientStructure
    workers: Reduction

    def out(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """Return the bucket as each replica receives it."""
        sent = self._leave(variables)
        if not self.in_pieces:
            return sent
        pieces = sent[: len(self.in_pieces)]
        whole = dict(zip(self.in_pieces, chunked_broadcast(pieces, self.bucket, self.in_pieces), strict=True))
        return [whole.get(device, sent[-1]) for device in self.devices]

    def _leave(self, variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
        """Return a copy of the bucket for every replica, or a piece for each other one, and a copy for the owner's."""
        number_of = {memory(variables[number]): number for number in self.bucket.members}

        # The variables are read inside, not passed: otherwise TensorFlow could not use rows of a table as a gradient.
        @custom_gradient
        def leave() -> tuple[list[tf.Tensor], Callable[..., Any]]:
            sent = {number: tf.cast(read(variables[number]), self.bucket.types.sent) for number in self.bucket.members}
            buffer = pack(sent, self.bucket)

            def reduce(*gradients: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> tuple[list, list]:
                with tf.device(self.bucket.owner):
                    total = self._total(gradients)
                return [], [total[number_of[memory(v)]] for v in variables]

            pieces = cut(buffer, len(self.in_pieces)) if self.in_pieces else []
            return [*pieces, *[buffer] * (len(self.devices) - len(pieces))], reduce

        with tf.device(self.bucket.owner):  # custom_gradient puts its own op around the results
            return list(leave())

    def _total(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices]
    ) -> dict[int, tf.Tensor | tf.IndexedSlices | None]:
        """Return the gradient of each member: summed over the replicas, and then over the workers."""
        connected = self.structure.connected(self.bucket.members)
        if not connected:
            return dict.fromkeys(self.bucket.members)
        stored = [tf.cast(gradient, self.bucket.types.stored) for gradient in gradients]
        if all(isinstance(gradient, tf.IndexedSlices) for gradient in stored):
            add_up = functools.partial(together, rows=self.bucket.types.rows or Rows.APART)
            rows = self.workers.rows(add_up(stored), add_up, self.bucket.owner, self.label)
            return {self.bucket.members[0]: rows}
        if self.in_pieces:  # the sum over other replicas, and the gradient of the owner's own, if it has one
            number = len(self.in_pieces)
            stored = [join(stored[:number], self.bucket.shape), *stored[number:]]
        whole = list(map(dense, stored))
        if self.bucket.types.is_new_value:
            summed = tf.reduce_max(tf.stack(whole), axis=0)
        else:
            summed = self.workers.mean(tf.add_n(whole), self.bucket.owner, self.label)
        total = zip(self.bucket.members, open_bucket(summed, self.bucket), strict=True)
        return {number: gradient if number in connected else None for number, gradient in total}
