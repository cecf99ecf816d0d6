"""TensorFlow's facts about a dataset, which have no public names."""

from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset


def auto_shard(dataset: tf.data.Dataset, num_workers: int, worker: int) -> tf.data.Dataset:
    """Return one worker's part of a dataset, by the policy in its options. It is public only within a strategy."""
    return _AutoShardDataset(dataset, num_workers, worker)


def graphs_of(dataset: tf.data.Dataset) -> list[Any]:
    """Return the graphs of the functions of a dataset's last step."""
    return [function.function.graph.as_graph_def() for function in dataset._functions()]


def captured_by(dataset: tf.data.Dataset) -> list[tf.Tensor]:
    """Return the tensors that the functions of a dataset's last step have captured."""
    try:
        functions = dataset._functions()
    except AttributeError:  # its function raised an error: an error that is kept keeps the unfinished dataset
        return []
    return [x for function in functions for x in function.function.captured_inputs]


def inputs_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the datasets that a dataset is made of."""
    return dataset._inputs()
