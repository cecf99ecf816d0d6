"""Cut a dataset into each worker's parts of its batches, with TensorFlow's auto-shard."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.batches.split_merge import count_rows, share_rows, take_rows
from multigpu.engines.tensorflow.multi_worker.step import Part
from multigpu.engines.tensorflow.private_api.datasets import auto_shard, graphs_of, inputs_of
from multigpu.engines.tensorflow.private_api.graphs import types_of_ops

OFF, DATA, FILE = (getattr(tf.data.experimental.AutoShardPolicy, name) for name in ("OFF", "DATA", "FILE"))
READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "ArrayRecordDataset")


def sharded(dataset: tf.data.Dataset, cluster: Cluster) -> tf.data.Dataset:
    """Return this worker's parts of a dataset's global batches, by TensorFlow's auto-shard: whole files, or rows."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == OFF:
        return dataset.map(as_part(dataset))
    if policy == FILE or (policy != DATA and reads_files(dataset)):
        with contextlib.suppress(*(() if policy == FILE else (tf.errors.OpError,))):  # too few files
            return _by_files(dataset.flat_map(_all_parts(dataset, cluster)), cluster)
    return dataset.map(own_part(dataset, cluster))


def reads_files(dataset: tf.data.Dataset) -> bool:
    """Return whether a dataset begins with files. TensorFlow logs an error if it has none to shard."""
    kinds = {type(dataset).__name__}.union(*map(types_of_ops, graphs_of(dataset)))
    return any(kind.startswith(READERS) for kind in kinds) or any(map(reads_files, inputs_of(dataset)))


def takes_none_ahead(dataset: tf.data.Dataset) -> bool:
    """Return whether no batch may be requested before its step, as for batches from R."""
    options = dataset.options()
    return options.autotune.enabled is False and options.experimental_optimization.inject_prefetch is False


def own_part(dataset: tf.data.Dataset, cluster: Cluster) -> Callable[..., Part]:
    """Return a function that cuts this worker's part out of a global batch of the dataset."""
    return lambda *batch: _part(_structure(dataset, batch), cluster, cluster.number)


def _all_parts(dataset: tf.data.Dataset, cluster: Cluster) -> Callable[..., tf.data.Dataset]:
    def cut(*batch: Any) -> tf.data.Dataset:
        data = _structure(dataset, batch)
        return tf.data.Dataset.range(cluster.size).map(lambda number: _part(data, cluster, number))

    return cut


def _part(data: Any, cluster: Cluster, number: int | tf.Tensor) -> Part:
    begins, sizes, kept = map(tf.stack, zip(*share_rows(_rows(data), cluster.size), strict=True))
    taken = tf.nest.map_structure(lambda x: take_rows(x, begins[number], sizes[number]), data)
    return Part(taken, tf.minimum(kept[number], 1), tf.constant(True))


def as_part(dataset: tf.data.Dataset) -> Callable[..., Part]:
    """Return a function that makes a part of a batch of a dataset that only this worker has."""
    return lambda *batch: Part(_structure(dataset, batch), tf.constant(1), tf.constant(True))


def _structure(dataset: tf.data.Dataset, batch: tuple) -> Any:
    """Return an element as in the dataset, which passes the members of a tuple one by one to a function."""
    return batch if type(dataset.element_spec) is tuple else batch[0]


def _rows(data: Any) -> tf.Tensor:
    return count_rows(tf.nest.flatten(data)[:1])


def _by_files(dataset: tf.data.Dataset, cluster: Cluster) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = FILE
    return auto_shard(dataset.with_options(options), cluster.size, cluster.number)


def with_one_row_ahead(parts: tf.data.Dataset) -> tf.data.Dataset:
    """Return the same parts, marked whether they are the last, and then a row that does not count, repeated."""

    def known(window: Part) -> tf.data.Dataset:
        one = tf.data.Dataset.zip((window.data, window.counts))
        number = window.counts.reduce(0, lambda n, _: n + 1)
        first = one.take(1).map(lambda data, counts: Part(data, counts, number > 1))
        standby = one.take(1).map(lambda data, _: Part(_first_row(data), tf.constant(0), tf.constant(False)))
        return first.concatenate(standby.repeat().take(tf.where(number > 1, tf.cast(0, tf.int64), -1)))

    return parts.window(2, shift=1).flat_map(known)


def _first_row(data: Any) -> Any:
    return tf.nest.map_structure(lambda x: take_rows(x, 0, 1), data)
