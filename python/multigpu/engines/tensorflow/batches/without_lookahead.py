"""Batches from a function, each taken when its step needs it."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf


def batches_without_lookahead(batches: Callable[[], Iterator[Any]], spec: Any) -> tf.data.Dataset:
    """Return a dataset of the batches that an iterator gives.

    Args:
        batches: a function that returns an iterator.
        spec: shapes and types of a batch, as `keras.KerasTensor`.
    """
    signature = keras.tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), spec)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # a different source
    return tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)
