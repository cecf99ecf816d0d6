"""Global batches. Each worker takes its part of them. Workers that run out early are idle until all have ended."""

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.batches.array_source import batches
from multigpu.engines.tensorflow.batches.fit_arguments import are_arrays
from multigpu.engines.tensorflow.batches.split_merge import share_rows
from multigpu.engines.tensorflow.cluster.messages import all_gather_numbers
from multigpu.engines.tensorflow.multi_worker.auto_shard import (
    as_part,
    own_part,
    sharded,
    takes_none_ahead,
    with_one_row_ahead,
)
from multigpu.engines.tensorflow.multi_worker.step import Part
from multigpu.private_api.data_adapters import ArrayDataAdapter, DataAdapter, get_data_adapter

INFINITE = tf.data.INFINITE_CARDINALITY


class GlobalBatches(DataAdapter):
    """A data source for Keras: this worker's parts of the global batches.

    Attributes:
        num_batches: the number of global batches, or None if it is known only at the end.
    """

    num_batches: int | None = None

    def __init__(self, parts: tf.data.Dataset, num_batches: int | None, given: DataAdapter | None = None) -> None:
        self._parts, self.num_batches = parts, num_batches
        if given is not None:
            self.on_epoch_begin, self.on_epoch_end = given.on_epoch_begin, given.on_epoch_end  # a dataset may shuffle

    def get_tf_dataset(self) -> tf.data.Dataset:
        """Return a dataset whose elements are of type `Part`."""
        return self._parts


def global_batches(arguments: dict[str, Any], cluster: Cluster, at_end: contextlib.ExitStack) -> GlobalBatches:
    """Return the data of a Keras method as this worker's parts of global batches.

    Arrays, which every worker has whole, and datasets are cut. Other data (generators, `keras.utils.PyDataset`,
    loaders, datasets with the auto-shard policy OFF) belong to this worker only: their batches are its parts of the
    global batches.

    Args:
        arguments: `x`, `y`, `sample_weight`, `batch_size`, `shuffle`, `class_weight`, and `steps`.
        cluster: the workers.
        at_end: the callbacks for the end of the method, which release arrays.
    """
    if are_arrays(arguments) and arguments.get("class_weight") is None:
        return _of_arrays(arguments, cluster, at_end)
    x, steps = arguments.get("x"), arguments.get("steps")
    is_dataset = isinstance(x, tf.data.Dataset)
    given = get_data_adapter(
        x=x,
        **{name: arguments.get(name) for name in ("y", "sample_weight", "batch_size", "class_weight")},
        steps_per_epoch=steps,
        shuffle=arguments.get("shuffle", False) and not is_dataset and not hasattr(x, "__next__"),
    )
    dataset = given.get_tf_dataset()
    if isinstance(given, ArrayDataAdapter):
        parts = dataset.map(own_part(dataset, cluster))
    elif is_dataset:
        parts = sharded(dataset, cluster)
    else:
        parts = dataset.map(as_part(dataset))
    if steps and takes_none_ahead(dataset):
        return GlobalBatches(parts, None, given)
    return _until_all_end(parts, given, None if is_dataset else given.num_batches, cluster)  # of files, there are fewer


def _of_arrays(arguments: dict[str, Any], cluster: Cluster, at_end: contextlib.ExitStack) -> GlobalBatches:
    """Return the parts of arrays that all workers have. All workers assign the rows in the same way."""
    x, y, weight, size, steps = map(arguments.get, ("x", "y", "sample_weight", "batch_size", "steps"))
    first_row = keras.tree.map_structure(lambda array: None if array is None else array[:1], (x, y, weight))
    ArrayDataAdapter(*first_row)  # Keras' checks of targets and weights
    rows = len(keras.tree.flatten(x)[0])
    size = size or (-(-rows // steps) if steps else 32)
    told = all_gather_numbers([rows, size], cluster)
    for number, (others, others_size) in enumerate(told):
        if (others, others_size) != (rows, size):
            raise refuse(
                "the same arrays and the same `batch_size` on all workers, which share the rows of each global batch",
                f"{rows} rows in batches of {size} here, and {others:.0f} in batches of {others_size:.0f} on "
                f"{cluster.name(number)}",
                "Pass all rows everywhere; or pass each worker's own data as a `tf.data.Dataset` with the auto-shard "
                "policy OFF.",
            )

    def own(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mine = share_rows(tf.size(indices), cluster.size)[cluster.number]
        return indices[mine.begin : mine.begin + mine.size], tf.minimum(mine.kept, 1)

    dataset, cut = batches(x, y, weight, size, arguments.get("shuffle", False), own)
    at_end.callback(cut.release)
    parts = dataset.map(lambda data, counts: Part(data, counts, tf.constant(True)))
    return GlobalBatches(parts, int(parts.cardinality()))


def _until_all_end(
    parts: tf.data.Dataset, given: DataAdapter, num_batches: int | None, cluster: Cluster
) -> GlobalBatches:
    """Return as many steps on all workers as the worker with the most parts has."""
    mine = num_batches or int(parts.cardinality())
    numbers = all_gather_numbers([mine], cluster)[:, 0].astype(int)
    if not all(numbers):
        none = ", ".join(cluster.name(number) for number in np.flatnonzero(numbers == 0))
        raise refuse(
            "data on all workers", f"no batch on {none}", "Use fewer workers, or distribute the data more evenly."
        )
    if all(numbers == INFINITE) or (len(set(numbers)) == 1 and numbers[0] > 0):
        return GlobalBatches(parts, int(numbers[0]) if numbers[0] > 0 else None, given)
    ahead = with_one_row_ahead(parts)
    if min(numbers) > 0:
        return GlobalBatches(ahead.take(max(numbers)), max(numbers), given)
    return GlobalBatches(ahead, None, given)
