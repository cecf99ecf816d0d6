"""The position of a slice in the global batch, as an input of a replica."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Position(NamedTuple):
    """The last inputs of a replica, each (), int32, on the host.

    Attributes:
        kept: rows of the slice that count, 0 for a replica that stands by.
        replica: number of the replica among those of all workers.
        first: number of the slice's first row in the global batch, that of all workers.
        total: rows of the global batch.
    """

    kept: tf.Tensor
    replica: tf.Tensor
    first: tf.Tensor
    total: tf.Tensor

    @classmethod
    def at_end_of(cls, inputs: Sequence[tf.Tensor]) -> "Position":
        """That of a replica with these inputs."""
        return cls(*inputs[-NUM_SCALARS:])


NUM_SCALARS = len(Position._fields)
