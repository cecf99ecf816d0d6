"""Reduce values over workers. For this process alone, its devices' reduced values are complete."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
AddUp: TypeAlias = Callable[[Sequence[tf.IndexedSlices]], tf.IndexedSlices]
Merge: TypeAlias = Callable[[tf.Tensor], tf.Tensor]  # from the values of several, stacked, to the value of all


class Reduction:
    """The reduction over this process alone, which leaves all values as they are. `Together` reduces over several.

    Attributes:
        several: whether other workers take part.
        counted: 1 if this worker's rows count, 0 if it is idle.
        first_replica: the number of this worker's first replica among the replicas of all workers.
        begun: sums over all workers that are under way. An error before their end would end the workers' connection.
    """

    several = False
    counted: tf.Tensor | int = 1
    begun: Sequence[tf.Tensor] = ()

    def __init__(self, first_replica: int = 0) -> None:
        self.first_replica = first_replica

    @property
    def in_forward_pass(self) -> "Reduction":
        """The workers over which state and losses are reduced in the forward pass."""
        return self

    def rows_around(self, here: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return how many rows of a batch come before this worker's, and how many there are in all, () int32."""
        return tf.zeros_like(here), here

    def rows(self, x: Gradient, add_up: AddUp, owner: str, label: str) -> Gradient:
        """Return the rows of a weight's gradient, of the global batch, on `owner`. Dense ones are as in `mean()`.

        Args:
            x: this worker's rows.
            add_up: a function that combines the rows of each worker to the rows of all.
            owner: a device.
            label: the name of the weight.
        """
        return x

    def mean(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return the mean of the workers' values or gradients, weighted by rows: that of the global batch."""
        return x

    def of_chief(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return the chief's value."""
        return x

    def reduced(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return `x`, which is the same on all workers, with a gradient from all of them."""
        return x

    def all_rows(self, x: tf.Tensor) -> tf.Tensor:
        """Return the rows of all workers."""
        return x

    def over_workers(self, x: tf.Tensor, owner: str, label: str, merge: Merge | None) -> tf.Tensor:
        """Combine the slices' values of all workers.

        Args:
            x: the combined value of this worker's slices.
            owner: a device.
            label: the name of the value.
            merge: how to combine the workers' values. By default, `x` is a gradient of this worker's own loss, and the
                result is the gradient of the loss of the global batch.
        """
        return x
