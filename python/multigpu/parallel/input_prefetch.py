"""Where Keras' loop gets batches from: their slices are sent ahead to devices that have a memory of their own."""

from typing import Any

import tensorflow as tf

from multigpu.batches.prefetch import SlicedBatches, can_be_sent
from multigpu.devices.plan import Plan


class InputPrefetch:
    """What Keras asks about a strategy of `tf.distribute`: the default one, but for the batches.

    Args:
        strategy: TensorFlow's default strategy.
        plan: the devices.
        one_by_one: whether each step is a call of a function of its own.
    """

    def __init__(self, strategy: tf.distribute.Strategy, plan: Plan, one_by_one: bool) -> None:
        self._strategy = strategy
        self._plan = plan
        self._one_by_one = one_by_one

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> Any:
        """The batches that `fit`, `evaluate` or `predict` is to iterate over."""
        if self._one_by_one and self._plan.sends_ahead and _can_be_read_ahead(dataset):
            return SlicedBatches(dataset, tuple(self._plan.devices))
        return dataset


def _can_be_read_ahead(dataset: tf.data.Dataset) -> bool:
    """More than one batch, which may be asked for before its step."""
    waits = dataset.options().experimental_optimization.inject_prefetch is False  # as for a function of R
    return not waits and int(dataset.cardinality()) != 1 and can_be_sent(dataset.element_spec)
