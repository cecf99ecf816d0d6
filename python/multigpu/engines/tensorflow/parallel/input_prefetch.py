"""Give Keras' loop batches whose slices are sent to the devices ahead of time."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.prefetch import SlicedBatches, can_be_sent
from multigpu.private_api.class_code import MAKERS, defined_by_class


class InputPrefetch:
    """The template's strategy of `tf.distribute`, with batches whose slices are sent ahead.

    Args:
        strategy: the template's strategy.
        devices: the replicas' devices.
    """

    def __init__(self, strategy: tf.distribute.Strategy, devices: Sequence[str]) -> None:
        self._strategy = strategy
        self._devices = tuple(devices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset | SlicedBatches:
        """Return the batches for `fit`, `evaluate` or `predict` to iterate over."""
        return SlicedBatches(dataset, self._devices) if _can_be_read_ahead(dataset) else dataset


def is_of_keras_loop(model: keras.Model, made: Mapping[str, Any]) -> bool:
    """Return whether Keras' loop makes the steps, one by one. Custom steps need plain batches.

    Args:
        model: a parallel model.
        made: the step functions that it has made, by name.
    """
    own = any(defined_by_class(type(model.template), name) or name in vars(model) for name in MAKERS)
    functions = [name.removeprefix("make_") for name in MAKERS]
    assigned = any(getattr(model, name) not in (None, made.get(name)) for name in functions)
    return model.steps_per_execution == 1 and not (model.run_eagerly or own or assigned)


def _can_be_read_ahead(dataset: tf.data.Dataset) -> bool:
    """Return whether more than one batch may be requested before its step."""
    waits = dataset.options().experimental_optimization.inject_prefetch is False  # not allowed for a function of R
    return not waits and int(dataset.cardinality()) != 1 and can_be_sent(dataset.element_spec)
