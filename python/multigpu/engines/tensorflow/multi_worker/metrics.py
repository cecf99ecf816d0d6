"""Aggregate logs over all rows of all workers, so that callbacks decide the same everywhere."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy as np

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.messages import all_reduce
from multigpu.engines.tensorflow.private_api.variables import backing_variable


def aggregate_logs(
    result: Callable[[], dict[str, Any]],
    metrics: Sequence[keras.Metric],
    same: Collection[int],
    is_idle: bool,
    cluster: Cluster,
) -> Any:
    """Return the logs of `result` for the metrics of all workers; this worker's own metrics do not change.

    Logs of a custom training step that are not results of metrics are averaged over the workers. If a log has the name
    of a metric, it is its result where both have the same value on every worker that was not idle.

    Args:
        result: returns the logs of this worker, from its metrics.
        metrics: the metrics.
        same: the ids of variables that have the values of the global batch on all workers, as layers assign them.
        is_idle: whether this worker was idle in the last step. Its metrics are then without the results of that step.
        cluster: the workers.
    """
    variables = [variable for metric in metrics for variable in metric.variables]
    own = [backing_variable(variable).numpy() for variable in variables]
    total = _summed([_share(v, x, id(v) in same, cluster) for v, x in zip(variables, own, strict=True)], cluster)
    values = [keras.ops.convert_to_tensor(new.astype(old.dtype)) for new, old in zip(total, own, strict=True)]
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        logs, results = keras.tree.map_structure(np.asarray, dict(result())), _results(metrics)
    here = _results(metrics)
    if logs.keys() == here.keys():
        return logs
    are_equal = (name in here and (is_idle or np.array_equal(value, here[name])) for name, value in logs.items())
    are_other = [np.float64(not is_equal) for is_equal in are_equal]
    means = {name: keras.tree.map_structure(lambda x: x / cluster.size, value) for name, value in logs.items()}
    others, means = keras.tree.pack_sequence_as(
        (are_other, means), _summed(keras.tree.flatten((are_other, means)), cluster)
    )
    return {name: means[name] if other else results[name] for name, other in zip(logs, others, strict=True)}


def _results(metrics: Sequence[keras.Metric]) -> dict[str, np.ndarray]:
    """Return the results of metrics by their names. The result of one may be a dictionary."""
    named = [(metric.name, metric.result()) for metric in metrics]
    results = [result if isinstance(result, dict) else {name: result} for name, result in named]
    return {name: np.asarray(value) for each in results for name, value in each.items()}


def _share(variable: keras.Variable, value: np.ndarray, is_same: bool, cluster: Cluster) -> np.ndarray:
    """Return the value that a worker adds to the sum: metrics sum over replicas, unless their aggregation differs."""
    if is_same or variable.aggregation == "only_first_replica":
        return value if cluster.is_chief else np.zeros_like(value)
    return value / cluster.size if variable.aggregation == "mean" else value


def _summed(arrays: Sequence[np.ndarray], cluster: Cluster) -> list[np.ndarray]:
    """Return the sums of arrays over the workers, with one message."""
    if not arrays:
        return []
    told = all_reduce(np.concatenate([np.ravel(array).astype("float64") for array in arrays]), cluster)
    ends = np.cumsum([np.size(array) for array in arrays])[:-1]
    return [piece.reshape(np.shape(array)) for piece, array in zip(np.split(told, ends), arrays, strict=True)]
