"""The backward pass of a replica: first order from the tape of its run, second order by running it again."""

import sys
from collections.abc import Container, Sequence
from typing import Any

import tensorflow as tf

from multigpu.batches.split_merge import drop_standby
from multigpu.private_api.gradients import custom_gradient, dense
from multigpu.replicas.replica_run import ReplicaRun
from multigpu.replicas.tapes import Taped, floating, is_differentiable
from multigpu.weights.buckets import pack
from multigpu.weights.gradient_structure import inputs_reached

Gradients = list[tf.Tensor | None]
TableRows = dict[int, tf.IndexedSlices]  # by id of the table


class Backward:
    """How one run of a replica is differentiated."""

    def __init__(
        self, run: ReplicaRun, arrived: Sequence[tf.Tensor], results: Sequence[tf.Tensor], taped: list[Taped]
    ) -> None:
        """Takes the run.

        Args:
            run: the replica on its device.
            arrived: packed weights and other inputs.
            results: what it gave for them.
            taped: its tape, which can be asked once; empty when the tape was released.
        """
        self._run = run
        self._arrived = arrived
        self._results = results
        self._taped = taped

    def gradient(self, *upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
        """Gradients of packed weights and inputs; and, where there are tables, of these."""
        used = self._used()
        with tf.device(self._run.device):
            gradients, of_tables = self._first_order(used, [dense(upstream[i]) for i in used])
        return (gradients, [of_tables.get(id(v)) for v in variables]) if variables else gradients

    def _used(self) -> list[int]:
        """Numbers of the results that a gradient comes back from."""
        candidates = [
            i for i in range(self._run.replica.layout.num_differentiable) if is_differentiable(self._results[i])
        ]
        return [i for i in candidates if i in self._run.structure.used] or candidates

    def _first_order(self, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> tuple[Gradients, TableRows]:
        """Gradients for `arrived`, in turn differentiable; and rows for the tables."""
        taped = self._taped.pop() if self._taped else None
        present: list[int] = []
        of_tables: TableRows = {}

        @custom_gradient
        def first_order(*given: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
            arguments = [tf.identity(x) for x in given]  # of this graph: a function around may be differentiated too
            gradients, rows = self._differentiate(taped or self._run.tape(self._arrived), used, upstream)
            of_tables.update(rows)
            present[:] = [i for i, gradient in enumerate(gradients) if gradient is not None]

            def backward(*upstream_of_gradients: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
                seconds = self._second_order(used, arguments, present, variables, upstream_of_gradients)
                return tuple(seconds) if variables else seconds[0]

            return [gradients[i] for i in present], backward

        found = dict(zip(present, first_order(*self._arrived, *upstream), strict=True))
        return [found.get(i) for i in range(len(self._arrived))], of_tables

    def _second_order(
        self,
        used: Sequence[int],
        arguments: Sequence[tf.Tensor],
        present: Sequence[int],
        variables: Sequence[tf.Variable],
        upstream: Sequence[tf.Tensor],
    ) -> list[Any]:
        """Gradients of the gradients that were present, for the arguments and the tables: the replica is run again."""
        with tf.device(self._run.device), tf.GradientTape() as tape:
            tape.watch(floating(arguments))
            again = self._run.tape(arguments[: len(self._arrived)])
            gradients, _ = self._differentiate(again, used, arguments[len(self._arrived) :])
            targets = [gradients[i] for i in present]
            return tape.gradient(targets, [list(arguments), list(variables)], list(upstream))

    def _differentiate(
        self, taped: Taped, used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> tuple[Gradients, TableRows]:
        """Gradients of packed weights and of inputs, None where nothing depends on it; and rows of tables."""
        run = self._run
        gradients, of_tables = taped.tape.gradient(
            [taped.results[i] for i in used], [taped.sources, list(run.replica.tables)], output_gradients=list(upstream)
        )
        num_weights = sum(len(bucket.members) for bucket in run.buckets)
        self._note(gradients[:num_weights], used, taped)
        in_buffers = [_in_buffer(g, w) for g, w in zip(gradients[:num_weights], taped.sources, strict=False)]
        packed = [*(pack(in_buffers, bucket) for bucket in run.buckets), *gradients[num_weights:]]
        return packed, self._table_rows(of_tables, used, taped.sources[-2])

    def _table_rows(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], used: Sequence[int], kept: tf.Tensor
    ) -> TableRows:
        """The rows of each table that leads to a result in use, from the same replica of all workers."""
        run, reached = self._run, self._tables_reached(used)
        return {
            id(table): run.workers.rows(_counted_rows(gradient, kept), run.device, f"table {position} of {run.number}")
            for position, (table, gradient) in enumerate(zip(run.replica.tables, gradients, strict=True))
            if gradient is not None and id(table) in reached
        }

    def _note(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], used: Sequence[int], taped: Taped
    ) -> None:
        """Tells the owners which weights are connected, and which of them get rows."""
        structure, reached, kept = self._run.structure, self._reached(used), taped.sources[-2]
        for weight, gradient in enumerate(gradients):
            if gradient is None or weight not in reached:
                continue
            structure.connected.add(weight)
            if isinstance(gradient, tf.IndexedSlices):
                structure.rows.setdefault(weight, {})[self._run.number] = _counted_rows(gradient, kept)

    def _reached(self, used: Sequence[int]) -> Container[int]:
        """Weights that lead to a result in use. A traced function has gradients, if zero, for all that lead to any."""
        function = self._run.function
        if not isinstance(function, tf.types.experimental.ConcreteFunction):
            return range(sys.maxsize)
        return inputs_reached([function.outputs[i] for i in used], function.inputs)

    def _tables_reached(self, used: Sequence[int]) -> Container[int]:
        """Ids of the tables that lead to a result in use; a trace has their handles after its inputs."""
        reached, tables = self._reached(used), self._run.replica.tables
        if isinstance(reached, range):
            return {id(table) for table in tables}
        function: Any = self._run.function  # a concrete one
        captured = function.captured_inputs
        first = len(function.inputs) - len(captured)
        return {
            id(table)
            for table in tables
            if any(handle is table.handle and first + i in reached for i, handle in enumerate(captured))
        }


def _counted_rows(gradient: tf.Tensor | tf.IndexedSlices, kept: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """Rows of a table's gradient, none of a replica that stands by; a dense one as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, indices = drop_standby(gradient.values, kept), drop_standby(gradient.indices, kept)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _in_buffer(gradient: tf.Tensor | tf.IndexedSlices | None, weight: tf.Tensor) -> tf.Tensor:
    """What travels in a buffer: zeros for no gradient and for rows, which are noted instead."""
    if isinstance(gradient, tf.IndexedSlices) or gradient is None:
        return tf.zeros_like(weight)
    return gradient
