"""Where Keras' loop gets batches from: slices of each are sent ahead to the devices."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from multigpu.batches.prefetch import SlicedBatches, can_be_sent


class InputPrefetch:
    """What Keras asks about a strategy of `tf.distribute`: that of the template, but for the batches.

    Args:
        strategy: the template's.
        devices: those of the replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy, devices: Sequence[str]) -> None:
        self._strategy = strategy
        self._devices = tuple(devices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset | SlicedBatches:
        """The batches that `fit`, `evaluate` or `predict` is to iterate over."""
        return SlicedBatches(dataset, self._devices) if _can_be_read_ahead(dataset) else dataset


def _can_be_read_ahead(dataset: tf.data.Dataset) -> bool:
    """More than one batch, which may be asked for before its step."""
    waits = dataset.options().experimental_optimization.inject_prefetch is False  # as for a function of R
    return not waits and int(dataset.cardinality()) != 1 and can_be_sent(dataset.element_spec)
