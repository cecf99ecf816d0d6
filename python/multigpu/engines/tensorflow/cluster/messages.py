"""Messages between workers outside of training steps: numbers, texts, and the chief's values."""

import itertools
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.collective import Group
from multigpu.engines.tensorflow.cluster.failures import named
from multigpu.engines.tensorflow.cluster.rendezvous import barrier_sum
from multigpu.engines.tensorflow.private_api.variables import backing_variable

PIECE = 1 << 24  # number of values that the chief sends at once
_messages = itertools.count()  # all workers send the same messages in the same order


def all_gather_numbers(numbers: Sequence[float], cluster: Cluster) -> np.ndarray:
    """Return some numbers of every worker: (workers, numbers), float64."""
    table = np.zeros((cluster.size, len(numbers)), "float64")
    table[cluster.number] = numbers
    return all_reduce(table, cluster)


def all_gather_text(text: str, cluster: Cluster) -> list[str]:
    """Return a text of every worker."""
    encoded = np.frombuffer(text.encode(), np.uint8)
    lengths = all_gather_numbers([len(encoded)], cluster)[:, 0].astype(int)
    table = np.zeros((cluster.size, max(lengths)), "int32")
    table[cluster.number, : len(encoded)] = encoded
    told = all_reduce(table, cluster)
    return [bytes(row[:length].astype(np.uint8)).decode() for row, length in zip(told, lengths, strict=True)]


def all_reduce(x: np.ndarray, cluster: Cluster) -> np.ndarray:
    """Return the sum of an array over workers: float32, float64, int32 or int64, of the same shape on all workers."""
    group = Group(cluster.size, f"{cluster.size} of messages")
    label = f"message {next(_messages)}"
    with named(cluster):
        return barrier_sum(tf.convert_to_tensor(x), lambda y: group.sum(y, label)).numpy()


def broadcast_variables(variables: Sequence[keras.Variable], cluster: Cluster) -> None:
    """Give variables the chief's values. Text stays unchanged on each worker."""
    by_type: dict[tf.DType, list[tf.Variable]] = {}
    for variable in map(backing_variable, variables):
        if variable.dtype != tf.string:
            by_type.setdefault(variable.dtype, []).append(variable)
    for dtype, members in by_type.items():
        _take(members, dtype, cluster)


def _take(variables: Sequence[tf.Variable], dtype: tf.DType, cluster: Cluster) -> None:
    """Give variables the chief's values of one type exactly, as the integers of their bytes."""
    mine = b"".join(variable.numpy().tobytes() for variable in variables)
    padded = np.frombuffer(mine + bytes(-len(mine) % 4), "int32")
    pieces = [padded[start : start + PIECE] for start in range(0, len(padded), PIECE)]
    if not cluster.is_chief:
        pieces = [np.zeros_like(piece) for piece in pieces]
    told = b"".join(all_reduce(piece, cluster).tobytes() for piece in pieces)
    values = np.frombuffer(told[: len(mine)], dtype.as_numpy_dtype)
    start = 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        variable.assign(values[start : start + size].reshape(variable.shape))
        start += size
