"""pack and unpack on many devices: the ops for a bucket are traced once, and each device has one call of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.weights.buckets import Bucket, open_bucket, pack


class Packing:
    """`pack` and `open_bucket`, to be called for each of several devices."""

    def __init__(self) -> None:
        self._traces: dict[tuple, Callable[..., Any]] = {}

    def pack(self, tensors: Mapping[int, tf.Tensor], bucket: Bucket) -> tf.Tensor:
        """Return the members of a bucket as one vector. A member that travels alone keeps its shape."""
        members = [tensors[number] for number in bucket.members]
        return self._call(_pack_members, bucket, members)

    def open(self, buffer: tf.Tensor, bucket: Bucket) -> list[tf.Tensor]:
        """Return the members of a bucket from its vector: the inverse of `pack()`."""
        return self._call(open_bucket, bucket, [buffer])

    def _call(self, function: Callable[..., Any], bucket: Bucket, tensors: Sequence[tf.Tensor]) -> Any:
        if tf.executing_eagerly() or len(bucket.members) == 1:
            return function(*tensors, bucket=bucket)
        specs = tuple(tf.TensorSpec(x.shape, x.dtype) for x in tensors)
        known = (function, bucket, specs)
        if known not in self._traces:
            with tf.device(None):  # its ops run where it is called
                traced = tf.function(lambda *given: function(*given, bucket=bucket), autograph=False)
                self._traces[known] = traced.get_concrete_function(*specs)
        return self._traces[known](*tensors)


def _pack_members(*members: tf.Tensor, bucket: Bucket) -> tf.Tensor:
    return pack(dict(zip(bucket.members, members, strict=True)), bucket)
