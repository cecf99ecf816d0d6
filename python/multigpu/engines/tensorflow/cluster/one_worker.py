"""The workers where there is but one: what its devices have reduced is complete. `Workers` is the same for several."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
AddUp: TypeAlias = Callable[[Sequence[tf.IndexedSlices]], tf.IndexedSlices]
Merge: TypeAlias = Callable[[tf.Tensor], tf.Tensor]  # of what several have, stacked along a new first axis: of all


class OneWorker:
    """This process alone.

    Attributes:
        several: whether other workers take part.
        counted: 1 if this worker's rows count, 0 if it only stands by.
        first_replica: the number of this worker's first replica among those of all.
    """

    several = False
    counted: tf.Tensor | int = 1

    def __init__(self, devices: Sequence[str], first_replica: int = 0) -> None:
        self.first_replica = first_replica
        self._devices = tuple(devices)

    @property
    def in_forward_pass(self) -> "OneWorker":
        """Those with which state and losses are reduced in the forward pass."""
        return self

    def rows_around(self, here: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a batch of which so many rows are here: how many come before them, and how many there are, () int32."""
        return tf.zeros_like(here), here

    def gradient(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """The gradient of the global batch, on the device that owns the weights."""
        return x

    def rows(self, x: Gradient, add_up: AddUp, owner: str, label: str) -> Gradient:
        """The rows of a weight's gradient, of the global batch, asked for on `owner`; a dense gradient as any other.

        Args:
            x: this worker's.
            add_up: makes those of all workers of those of each.
            owner: a device.
            label: what they are of.
        """
        return x

    def mean(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """The mean of the workers' values, weighted by rows."""
        return x

    def of_chief(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """The chief's value."""
        return x

    def reduced(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """`x`, which is the same for all workers, and whose gradient comes from all of them."""
        return x

    def all_rows(self, x: tf.Tensor) -> tf.Tensor:
        """The rows of all workers."""
        return x

    def over_workers(self, x: tf.Tensor, owner: str, label: str, merge: Merge | None) -> tf.Tensor:
        """Return what the slices of each worker have, in one, for all workers.

        Args:
            x: what the slices of this worker have, in one.
            owner: a device.
            label: what it is.
            merge: how; where nothing is given, `x` is a gradient of this worker's own loss, and is summed to that in
                the loss of the global batch.
        """
        return x
