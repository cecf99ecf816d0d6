"""Reduce the values of one call of a template over workers, after its devices have reduced them.

Each worker computes a mean loss on its own rows: L = Σ over workers of (their rows ÷ all rows) · their L. The gradient
and averaged state are combined in the same way. Sums over rows are added.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.collective import group_sum
from multigpu.engines.tensorflow.cluster.reduction import AddUp, Gradient, Merge, Reduction
from multigpu.engines.tensorflow.cluster.rendezvous import barrier_sum
from multigpu.engines.tensorflow.cluster.sparse_rows import all_rows, gather, in_place
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense, with_gradient


class Step(NamedTuple):
    """The step in which a template is called.

    Attributes:
        joint: whether all workers make the step together.
        counts: (), int32, 1 if this worker's rows count.
        rows: (), float32, rows of the global batch, or None if they are not counted yet.
        rows_here: (), float32, rows of this worker.
        rows_before: (), float32, rows of the workers before this one.
    """

    joint: bool
    counts: tf.Tensor | int = 1
    rows: tf.Tensor | None = None
    rows_here: tf.Tensor | None = None
    rows_before: tf.Tensor | None = None


class Together(Reduction):
    """The reduction over all workers, in one call of one model."""

    several = True

    def __init__(self, cluster: Cluster, model: str, replicas: int, rows: tf.Tensor, step: Step) -> None:
        """Prepare the sums of one call.

        Args:
            cluster: the workers.
            model: a name that distinguishes this model's sums from another's.
            replicas: the number of this worker's replicas.
            rows: (), rows of this worker's batch.
            step: the step in which the call is made.
        """
        super().__init__(first_replica=cluster.number * replicas)
        self.counted, self._joint = step.counts, step.joint
        self._cluster = cluster
        self._model = model
        self._rows = tf.cast(rows, tf.float32) * tf.cast(step.counts, tf.float32)
        self._of_step = step
        self._counts: dict[tf.Graph | None, tf.Tensor] = {}  # rows of each worker, when they are known
        self.begun = [self.total_rows()] if step.joint else []  # here once, not in each replica

    @property
    def in_forward_pass(self) -> Reduction:
        """All workers if all of them make this call, or this one if each worker calls by itself."""
        return self if self._joint else Reduction(self.first_replica)

    def rows(self, x: Gradient, add_up: AddUp, owner: str, label: str) -> Gradient:
        """Return the rows of a weight's gradient. See `Reduction.rows`."""
        if not isinstance(x, tf.IndexedSlices):
            return self.mean(x, owner, label)
        weighed = tf.IndexedSlices(self._weighed(x.values), x.indices, x.dense_shape)
        of_all = all_rows(weighed, self._cluster, lambda y, what: self._sum(y, owner, f"rows {label} {what}"))
        return add_up(of_all)

    def mean(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return the mean of the workers' values, weighted by rows. See `Reduction.mean`."""
        with tf.device(owner):
            return self._sum(self._weighed(x), owner, f"mean {label} {x.shape}")

    def of_chief(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return the chief's value. Text and booleans stay unchanged on each worker."""
        if not (x.dtype.is_integer or x.dtype.is_floating):
            return x
        with tf.device(owner):
            wide = x if x.dtype.is_floating else tf.cast(x, tf.int64)
            sent = wide if self._cluster.is_chief else tf.zeros_like(wide)
            return tf.cast(self._sum(sent, owner, f"of chief {label} {x.shape}"), x.dtype)

    def over_workers(self, x: tf.Tensor, owner: str, label: str, merge: Merge | None) -> tf.Tensor:
        """Combine the slices' values of all workers. See `Reduction.over_workers`.

        A resulting gradient is of the loss of the global batch. The workers' gradients are of their own losses, and the
        result is scaled so that it can be weighted like these.
        """
        with tf.device(owner):
            if merge is not None:
                return merge(self._sum(in_place(x, self._cluster), owner, label))
            total = self._sum(self._weighed(x), owner, f"{label} backward")
            return tf.math.divide_no_nan(total, tf.cast(self._share(), total.dtype))

    def reduced(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        """Return `x`, which is the same on all workers, with a gradient from all of them."""
        return with_gradient(x, lambda upstream: self.mean(upstream, owner, label))

    def all_rows(self, x: tf.Tensor) -> tf.Tensor:
        """Return the rows of all workers, in their order, given this worker's rows. An idle worker has none.

        Its gradient is of the loss of all rows, which every worker computes. It is scaled so that it can be weighted
        like the gradient of a loss of the worker's own rows.
        """
        _check_travels(x)

        @custom_gradient
        def gathered(own: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            rows, before = gather(own, self._cluster, lambda y, what: self._sum(y, "CPU:0", f"all rows {what}"))

            def of_own_rows(upstream: tf.Tensor) -> tf.Tensor:
                mine = dense(upstream)[before : before + tf.shape(own)[0]]
                return tf.math.divide_no_nan(mine, tf.cast(self._share(), mine.dtype))

            return rows, of_own_rows

        return gathered(x[: tf.shape(x)[0] * self.counted])

    def rows_around(self, here: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return how many rows of the global batch come before this worker's, and how many there are, () int32."""
        before = self._of_step.rows_before
        if before is None:
            before = tf.reduce_sum(self._all_counts()[: self._cluster.number])
        return tf.cast(before, here.dtype), tf.cast(self.total_rows(), here.dtype)

    def total_rows(self) -> tf.Tensor:
        """Return the number of rows of the global batch, a scalar float32."""
        return tf.reduce_sum(self._all_counts()) if self._of_step.rows is None else self._of_step.rows

    def _all_counts(self) -> tf.Tensor:
        """Return the number of rows of each worker, float32. It is requested once in each traced function."""
        graphs = list(_graphs_around())
        known = next((self._counts[graph] for graph in graphs if graph in self._counts), None)
        if known is None:
            with tf.device("CPU:0"):
                own = tf.one_hot(self._cluster.number, self._cluster.size) * self._rows
                known = barrier_sum(own, lambda counts: self._sum(counts, "CPU:0", "rows of the batch"))
                self._counts[graphs[0]] = known
        return known

    def _weighed(self, x: tf.Tensor) -> tf.Tensor:
        """Return `x` times this worker's share of the rows. Without rows this is 0, even for NaN."""
        return tf.math.multiply_no_nan(x, tf.cast(self._share(), x.dtype))

    def _share(self) -> tf.Tensor:
        return tf.math.divide_no_nan(self._rows, self.total_rows())

    def _sum(self, x: tf.Tensor, owner: str, label: str) -> tf.Tensor:
        return group_sum(x, self._cluster.size, owner, f"{self._model} {label}")


def _check_travels(x: tf.Tensor) -> None:
    """Raise an error for types that collective ops do not support."""
    if not isinstance(x, tf.Tensor) or x.dtype == tf.string or x.dtype.is_complex:
        kind = x.dtype.name if isinstance(x, tf.Tensor) else type(x).__name__
        raise refuse(
            "dense real numbers where a loss, or the state of a layer, depends on the rows of several workers",
            kind,
            "Compute it in a layer that takes numbers, or train on one machine.",
        )


def _graphs_around() -> Iterator[tf.Graph | None]:
    """Return the graph of the function that is being traced, and those around it. None outside of functions."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    yield graph
    while (graph := getattr(graph, "outer_graph", None)) is not None:
        yield graph
