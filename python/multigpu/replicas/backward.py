"""The backward pass of a replica: first order from the tape of its run, second order by running it again."""

import functools
import sys
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from multigpu.batches.split_merge import drop_standby
from multigpu.private_api.gradients import custom_gradient, dense
from multigpu.replicas.replica_run import ReplicaRun
from multigpu.replicas.tapes import Taped, floating, is_differentiable, untaped
from multigpu.weights.buckets import pack
from multigpu.weights.gradient_structure import inputs_reached

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None


class Backward:
    """How one run of a replica is differentiated.

    Its parts are what a gradient is asked for: packed weights, other inputs, and the tables that the replica reads by
    itself.
    """

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
            gradients = self._first_order(used, [dense(upstream[i]) for i in used])
            num_arrived = len(self._arrived)
            of_tables = self._of_all_workers(gradients[num_arrived:])
        return (gradients[:num_arrived], [of_tables.get(id(v)) for v in variables]) if variables else gradients

    def _used(self) -> list[int]:
        """Numbers of the results that a gradient comes back from."""
        candidates = [
            i for i in range(self._run.replica.layout.num_differentiable) if is_differentiable(self._results[i])
        ]
        return [i for i in candidates if i in self._run.structure.used] or candidates

    def _first_order(self, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> list[Gradient]:
        """Gradients of all parts, in turn differentiable."""
        taped = self._taped.pop() if self._taped else self._run.tape(untaped(self._arrived))
        gradients = self._differentiate(taped, used, untaped(upstream))
        for group in self._groups():
            present = [part for part in group if gradients[part] is not None]
            for part, gradient in zip(present, self._differentiable(gradients, present, used, upstream), strict=True):
                gradients[part] = gradient
        return gradients

    def _groups(self) -> list[list[int]]:
        """Parts whose gradients come together. In a graph each bucket is one: it leaves before others are there."""
        num_buckets, num_parts = len(self._run.buckets), len(self._arrived) + len(self._run.replica.tables)
        if tf.executing_eagerly():  # where it would run the replica once more for each of them, to second order
            return [list(range(num_parts))]
        return [*([bucket] for bucket in range(num_buckets)), list(range(num_buckets, num_parts))]

    def _differentiable(
        self, gradients: Sequence[Gradient], parts: Sequence[int], used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[Gradient]:
        """The same gradients of these parts, as one op that has a gradient."""
        if not parts:
            return []

        @custom_gradient
        def first_order(*given: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            # of this graph: a function around may be differentiated too
            arguments = [tf.identity(x) for x in given[: len(given) - len(tables)]]
            again = functools.partial(self._second_order, used, arguments, parts)
            return [_values(gradients[part]) for part in parts], lambda *upstream: again(upstream)

        tables = self._run.replica.tables
        values = first_order(*self._arrived, *upstream, *tables)
        return [_with_values(gradients[part], x) for part, x in zip(parts, values, strict=True)]

    def _second_order(
        self,
        used: Sequence[int],
        arguments: Sequence[tf.Tensor],
        parts: Sequence[int],
        upstream: Sequence[tf.Tensor],
    ) -> list[Any]:
        """Gradients of the gradients of some parts, for the arguments and the tables: the replica is run again."""
        with tf.device(self._run.device), tf.GradientTape() as tape:
            tape.watch(floating(arguments))
            again = self._run.tape(arguments[: len(self._arrived)])
            gradients = self._differentiate(again, used, arguments[len(self._arrived) :])
            targets = [_values(gradients[part]) for part in parts]
            sources = [*arguments, *self._run.replica.tables]
            return tape.gradient(targets, sources, [dense(x) for x in upstream])

    def _differentiate(self, taped: Taped, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> list[Gradient]:
        """Gradients of all parts, None where nothing depends on it; rows where a table was looked up."""
        run, kept = self._run, taped.sources[-2]
        gradients, of_tables = taped.tape.gradient(
            [taped.results[i] for i in used], [taped.sources, list(run.replica.tables)], output_gradients=list(upstream)
        )
        num_weights = sum(len(bucket.members) for bucket in run.buckets)
        reached = self._reached(used)
        run.structure.connected.update(w for w in range(num_weights) if gradients[w] is not None and w in reached)
        sent = {w: _or_zeros(gradients[w], taped.sources[w], kept) for w in range(num_weights)}
        tables_reached = self._tables_reached(used)
        return [
            *(pack(sent, bucket) for bucket in run.buckets),
            *gradients[num_weights:],
            *(
                _counted_rows(gradient, kept) if id(table) in tables_reached else None
                for table, gradient in zip(run.replica.tables, of_tables, strict=True)
            ),
        ]

    def _of_all_workers(self, gradients: Sequence[Gradient]) -> dict[int, tf.IndexedSlices]:
        """The rows of each table, by its id, from the same replica of all workers."""
        run = self._run
        return {
            id(table): run.workers.rows(gradient, run.device, f"table {position} of {run.number}")
            for position, (table, gradient) in enumerate(zip(run.replica.tables, gradients, strict=True))
            if gradient is not None
        }

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


def _counted_rows(gradient: Gradient, kept: tf.Tensor) -> Gradient:
    """Rows of a table's gradient, none of a replica that stands by; a dense one as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, indices = drop_standby(gradient.values, kept), drop_standby(gradient.indices, kept)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _or_zeros(gradient: Gradient, weight: tf.Tensor, kept: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """What goes back to the owner, which gives no gradient where none is connected."""
    return tf.zeros_like(weight) if gradient is None else _counted_rows(gradient, kept)


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: tf.Tensor | tf.IndexedSlices, values: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """The inverse: rows with these values, if it was rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
