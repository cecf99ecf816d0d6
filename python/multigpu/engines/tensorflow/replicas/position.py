"""The position of a slice in the global batch, as inputs of a replica."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Position(NamedTuple):
    """The last inputs of a replica, each (), int32, on the host.

    Attributes:
        kept: the rows of the slice that count, 0 for an idle replica.
        replica: the number of the replica among those of all workers.
        first: the number of the slice's first row in the global batch of all workers.
        total: the rows of the global batch.
    """

    kept: tf.Tensor
    replica: tf.Tensor
    first: tf.Tensor
    total: tf.Tensor

    @classmethod
    def at_end_of(cls, inputs: Sequence[tf.Tensor]) -> "Position":
        """Return the position at the end of a replica's inputs."""
        return cls(*inputs[-NUM_SCALARS:])


NUM_SCALARS = len(Position._fields)
