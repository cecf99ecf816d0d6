"""Aggregate logs over all rows of all workers, so that callbacks decide the same everywhere."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.messages import all_reduce
from multigpu.engines.tensorflow.private_api.variables import backing_variable


def aggregate_logs(result: Callable[[], dict[str, Any]], metrics: Sequence[keras.Metric], cluster: Cluster) -> Any:
    """Return the logs of `result` for the metrics of all workers; this worker's own metrics do not change.

    Logs that are not results of metrics, from a custom training step, are averaged over the workers.
    """
    variables = [variable for metric in metrics for variable in metric.variables]
    own = [backing_variable(variable).numpy() for variable in variables]
    total = _summed([_share(v, x, cluster) for v, x in zip(variables, own, strict=True)], cluster)
    values = [keras.ops.convert_to_tensor(new.astype(old.dtype)) for new, old in zip(total, own, strict=True)]
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        logs = keras.tree.map_structure(np.asarray, dict(result()))  # the result of a metric may be a dict
    if logs.keys() == {name for metric in metrics for name in _names(metric)}:
        return logs
    means = _summed([value / cluster.size for value in keras.tree.flatten(logs)], cluster)
    return keras.tree.pack_sequence_as(logs, means)


def _names(metric: keras.Metric) -> list[str]:
    result = metric.result()
    return list(result) if isinstance(result, dict) else [metric.name]


def _share(variable: keras.Variable, value: np.ndarray, cluster: Cluster) -> np.ndarray:
    """Return the value that a worker adds to the sum: metrics sum over replicas, unless their aggregation differs."""
    if variable.aggregation == "mean":
        return value / cluster.size
    if variable.aggregation == "only_first_replica" and not cluster.is_chief:
        return np.zeros_like(value)
    return value


def _summed(arrays: Sequence[np.ndarray], cluster: Cluster) -> list[np.ndarray]:
    """Return the sums of arrays over the workers, with one message."""
    if not arrays:
        return []
    told = all_reduce(np.concatenate([np.ravel(array).astype("float64") for array in arrays]), cluster)
    ends = np.cumsum([np.size(array) for array in arrays])[:-1]
    return [piece.reshape(np.shape(array)) for piece, array in zip(np.split(told, ends), arrays, strict=True)]
