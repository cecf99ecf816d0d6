"""Run one replica on its device: forward, and the gradients of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.batches.split_merge import Position, drop_standby
from multigpu.engines.tensorflow.private_api.graphs import side_by_side
from multigpu.engines.tensorflow.replicas.outside_state import trained_outside
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.run import Run
from multigpu.engines.tensorflow.replicas.tapes import Differentiable, Gradient, Taped, floating, untaped
from multigpu.engines.tensorflow.replicas.trace import trace
from multigpu.engines.tensorflow.replicas.traced import Traced, with_facts
from multigpu.engines.tensorflow.weights.buckets import Bucket, unpack
from multigpu.engines.tensorflow.weights.rows import Rows


@dataclass(frozen=True)
class ReplicaRun(Run):
    """One replica on its device.

    Attributes:
        replica: the replica to run, a function of weights and other inputs.
        traced: what its trace, or this run op by op, has shown. None before a run op by op.
        buckets: how the weights are packed.
    """

    replica: Replica
    traced: Traced | None
    buckets: Sequence[Bucket]

    @property
    def shown(self) -> Traced:
        """The facts that are known after the run."""
        assert self.traced is not None
        return self.traced

    def forward(self, arrived: Sequence[tf.Tensor]) -> tuple["ReplicaRun", Differentiable]:
        """Run the replica on no other tape."""
        traced, made = self._taped(untaped(arrived))
        return replace(self, traced=traced), made

    def tape(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Run the replica under its own tape."""
        return self._taped(arrived)[1]

    def _taped(self, arrived: Sequence[tf.Tensor]) -> tuple[Traced, Differentiable]:
        weights = unpack(arrived[: len(self.buckets)], self.buckets, self.packing.open)
        sources = [*weights, *arrived[len(self.buckets) :]]
        traced = self.traced
        if traced and traced.function:
            return traced, _under_tape(traced.function, sources, traced.tables)
        with tf.GradientTape() as tape:  # only running it shows what it reads
            tape.watch([*floating(sources), *self.replica.template.tables.trained()])
            results, traced = with_facts(self.replica, *sources)
        outside = trained_outside(tape.watched_variables(), traced.tables)
        return replace(traced, tables=[*traced.tables, *outside]), Taped(tape, sources, results)

    def leaving_together(self, num_arrived: int) -> list[tuple[list[int], str]]:
        """Return the parts whose gradients come together. In a graph, each bucket leaves as soon as it is ready."""
        num_buckets, num_parts = len(self.buckets), num_arrived + len(self.shown.tables)
        if tf.executing_eagerly():  # to second order, it would run the replica again for each of them
            return [(list(range(num_parts)), self.device)]
        groups = [*([bucket] for bucket in range(num_buckets)), list(range(num_buckets, num_parts))]
        return [(group, self.device) for group in groups]

    def gradients(
        self, made: Differentiable, used: Sequence[int], upstream: Sequence[tf.Tensor], noted: bool = True
    ) -> list[Gradient]:
        """Return the gradients of all parts: None if nothing depends on it, rows if a table was looked up."""
        kept = Position.at_end_of(made.sources).kept
        made = self._cut(made, used)
        with side_by_side():
            gradients, of_tables = made.gradients(used, upstream, self.shown.tables)
        num_weights = sum(len(bucket.members) for bucket in self.buckets)
        reach = self.shown.reach  # op by op, all tensors with a gradient lead to a used result
        reached = range(num_weights) if reach is None else reach.weights_of(used)
        if noted:
            self.structure.connect(w for w in reached if gradients[w] is not None)
        rows = {number: bucket.types.rows for bucket in self.buckets for number in bucket.members}
        sent = {w: counted_rows(or_zeros(gradients[w], made.sources[w]), kept, rows[w]) for w in range(num_weights)}
        handles = {id(table.handle) for table in self.shown.tables} if reach is None else reach.tables_of(used)
        return [
            *(self.packing.pack(sent, bucket) for bucket in self.buckets),
            *gradients[num_weights:],
            *(
                counted_rows(gradient, kept, self.shown.rows_of(table)) if id(table.handle) in handles else None
                for table, gradient in zip(self.shown.tables, of_tables, strict=True)
            ),
        ]

    def _cut(self, made: Differentiable, used: Sequence[int]) -> Differentiable:
        """Return the forward pass, or another one if gradients of zeros for its other results need not be zero."""
        traced, key = self.shown, tuple(used)
        if traced.reach is None:
            return made
        if key not in traced.using:
            cut = traced.reach.cut(used)
            again = bool(cut) and traced.is_repeatable
            traced.using[key] = trace(replace(self.replica, cut=cut))[1].function if again else traced.function
        function = traced.using[key]
        return made if function is traced.function else _under_tape(function, made.sources, traced.tables)

    def note_second_order(self, used: Sequence[int], parts: Sequence[int], of_sources: Sequence[Gradient]) -> None:
        """Record the weights on which some parts' gradients depend. None if they depend on no source."""
        num_weights, num_buckets = len(self.replica.template.weights), len(self.buckets)
        members = [weight for part in parts if part < num_buckets for weight in self.buckets[part].members]
        inputs = [*members, *(num_weights + part - num_buckets for part in parts if part >= num_buckets)]
        reach = self.shown.reach
        if reach is None:
            reached = set(range(num_weights))
        elif max(inputs) < len(of_sources):
            reached = reach.weights_of_gradients(tuple(used), tuple(inputs))
        else:  # rows of tables among them
            reached = reach.weights_of(used)
        self.structure.connect(weight for weight in reached if of_sources[weight] is not None)


def _under_tape(function: Any, sources: list[tf.Tensor], tables: Sequence[tf.Variable]) -> Taped:
    with tf.GradientTape(watch_accessed_variables=False) as tape, side_by_side():
        tape.watch([*floating(sources), *tables])
        return Taped(tape, sources, function(*sources))


def or_zeros(gradient: Gradient, weight: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """Return the gradient to send to the owner: zeros if none is connected."""
    return tf.zeros_like(weight) if gradient is None else gradient


def counted_rows(gradient: Gradient, kept: tf.Tensor, rows: Rows | None) -> Gradient:
    """Return the rows of a weight's gradient: none for an idle replica, if rows stay apart."""
    if not isinstance(gradient, tf.IndexedSlices) or rows is not Rows.APART:
        return gradient
    values, indices = drop_standby(gradient.values, kept), drop_standby(gradient.indices, kept)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
