"""Data of several workers: the same on all, or each worker's own."""

import sys
from typing import Any

import keras


def are_arrays(data: Any) -> bool:
    """Return whether data are arrays, lists and dicts of them, or None. All workers have the same arrays."""
    return all(leaf is None or hasattr(leaf, "shape") for leaf in keras.tree.flatten(data))


def brings_own_rows(x: Any) -> bool:
    """Return whether batches are the worker's own: all but those of a dataset that TensorFlow would shard."""
    data = sys.modules["tensorflow"].data if "tensorflow" in sys.modules else None
    if data is None or not isinstance(x, data.Dataset):
        return True
    return x.options().experimental_distribute.auto_shard_policy == data.experimental.AutoShardPolicy.OFF
