"""Messages between workers outside of training steps: numbers, texts, and the chief's values."""

import io
import itertools
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.collective import group_sum
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
    label = f"message {next(_messages)}"
    with named(cluster):
        return barrier_sum(tf.convert_to_tensor(x), lambda y: group_sum(y, cluster.size, "messages", label)).numpy()


def broadcast_variables(variables: Sequence[keras.Variable], cluster: Cluster) -> None:
    """Give variables the chief's values. Text stays unchanged on each worker."""
    numbers = [variable for variable in map(backing_variable, variables) if variable.dtype != tf.string]
    values = [variable.numpy() for variable in numbers]
    mine = b"".join(value.tobytes() for value in values)
    whole = np.frombuffer(mine + bytes(-len(mine) % 4), "int32")  # exact for each type
    sent = whole if cluster.is_chief else np.zeros_like(whole)
    pieces = [all_reduce(sent[start : start + PIECE], cluster) for start in range(0, len(sent), PIECE)]
    told = io.BytesIO(b"".join(piece.tobytes() for piece in pieces))
    for variable, value in zip(numbers, values, strict=True):
        variable.assign(np.frombuffer(told.read(value.nbytes), value.dtype).reshape(value.shape))
