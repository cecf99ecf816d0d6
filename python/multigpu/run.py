"""run: a replica forward and, when gradients are asked for, backward on the same device.

A gradient tape differentiates outside of any device scope, so that the backward ops of all replicas would land on one
device. Hence each replica is one op to the outer tape, and its gradient asks a tape of its own, on its own device.
"""

import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from multigpu.cluster.workers import Workers
from multigpu.custom_gradient import custom_gradient, dense
from multigpu.gradient_notes import GradientNotes, inputs_reached
from multigpu.parcels import Parcel, pack, unpack
from multigpu.send_reduce import arrive
from multigpu.split_merge import drop_standby
from multigpu.tapes import Taped, release_with_the_verb


@dataclass
class Run:
    """One replica on its device.

    Attributes:
        function: the replica, a function of the weights and of `inputs`, whose last but one is the rows that count.
        differentiable: how many of its results, from the first, can carry a gradient.
        parcels: how the weights are packed.
        device: name of the device.
        number: which replica this is.
        tables: variables that the function reads by itself, row by row.
        notes: what the owners have to know of the gradient beside its buffers.
        workers: the machines over which the rows of tables are reduced.
    """

    function: Callable[..., list[tf.Tensor]]
    differentiable: Callable[[], int]
    parcels: Sequence[Parcel]
    device: str
    number: int
    tables: Sequence[tf.Variable]
    notes: GradientNotes
    workers: Workers | None = None

    def __call__(self, buffers: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Results for packed weights and other inputs, differentiable to any order."""
        with tf.device(self.device):
            arrived = [arrive(buffer, parcel) for buffer, parcel in zip(buffers, self.parcels, strict=True)]
            return list(custom_gradient(self._forward)(*arrived, *inputs))

    def _forward(self, *arrived: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
        taped = [self._tape([_untaped(x) for x in arrived])]
        results = taped[0].results
        release_with_the_verb(taped)

        def backward(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            used = self._used(results)
            with tf.device(self.device):
                gradients, of_tables = self._backward(
                    taped.pop() if taped else None, arrived, used, [dense(upstream[i]) for i in used]
                )
            return (gradients, [of_tables.get(id(v)) for v in variables]) if variables else gradients

        return results, backward

    def _used(self, results: Sequence[tf.Tensor]) -> list[int]:
        """Numbers of the results that a gradient comes back from."""
        candidates = [i for i in range(self.differentiable()) if _is_differentiable(results[i])]
        return [i for i in candidates if i in self.notes.used] or candidates

    def _backward(
        self, taped: Taped | None, arrived: Sequence[tf.Tensor], used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], dict[int, tf.IndexedSlices]]:
        """Gradients for `arrived`, in turn differentiable, by running the replica anew; and rows for the tables."""
        present: list[int] = []
        of_tables: dict[int, tf.IndexedSlices] = {}

        @custom_gradient
        def first_order(*given: tf.Tensor):  # noqa: ANN202  # as `tf.custom_gradient` has it
            arguments = [tf.identity(x) for x in given]  # of this graph: a function around may be differentiated too
            gradients, rows = self._differentiate(taped or self._tape(arrived), used, upstream)
            of_tables.update(rows)
            present[:] = [i for i, gradient in enumerate(gradients) if gradient is not None]

            def second_order(*upstream_of_gradients: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
                with tf.device(self.device), tf.GradientTape() as tape:
                    tape.watch(_floating(arguments))
                    anew = self._tape(arguments[: len(arrived)])
                    again, _ = self._differentiate(anew, used, arguments[len(arrived) :])
                    targets = [again[i] for i in present]
                    seconds = tape.gradient(targets, [arguments, list(variables)], list(upstream_of_gradients))
                return tuple(seconds) if variables else seconds[0]

            return [gradients[i] for i in present], second_order

        gradients = first_order(*arrived, *upstream)
        found = dict(zip(present, gradients, strict=True))
        return [found.get(i) for i in range(len(arrived))], of_tables

    def _tape(self, arrived: Sequence[tf.Tensor]) -> Taped:
        weights = unpack(arrived[: len(self.parcels)], self.parcels)
        sources = [*weights, *arrived[len(self.parcels) :]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*_floating(sources), *self.tables])
            results = list(self.function(*sources))
        return Taped(tape, sources, results)

    def _differentiate(
        self, taped: Taped, used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], dict[int, tf.IndexedSlices]]:
        """Gradients of packed weights and of inputs, None where nothing depends on it; and those of tables, by id."""
        targets = [taped.results[i] for i in used]
        gradients, of_tables = taped.tape.gradient(
            targets, [taped.sources, list(self.tables)], output_gradients=list(upstream)
        )
        num_weights = sum(len(parcel.members) for parcel in self.parcels)
        self._note(gradients[:num_weights], used, taped)
        in_buffers = [_dense(g, w) for g, w in zip(gradients[:num_weights], taped.sources, strict=False)]
        packed = [*(pack(in_buffers, parcel) for parcel in self.parcels), *gradients[num_weights:]]
        kept = taped.sources[-2]
        reached = self._tables_reached(used)
        return packed, {
            id(table): self._reduced(_counted_rows(gradient, kept), position)
            for position, (table, gradient) in enumerate(zip(self.tables, of_tables, strict=True))
            if gradient is not None and id(table) in reached
        }

    def _reduced(self, rows: tf.IndexedSlices, table: int) -> tf.IndexedSlices:
        """Rows of a table's gradient, from the same replica of all workers."""
        return self.workers.rows(rows, self.device, f"table {table} of {self.number}") if self.workers else rows

    def _note(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], used: Sequence[int], taped: Taped
    ) -> None:

        reached, kept = self._reached(used), taped.sources[-2]
        for weight, gradient in enumerate(gradients):
            if gradient is None or weight not in reached:
                continue
            self.notes.connected.add(weight)
            if isinstance(gradient, tf.IndexedSlices):
                self.notes.rows.setdefault(weight, {})[self.number] = _counted_rows(gradient, kept)

    def _reached(self, used: Sequence[int]) -> Container[int]:
        """Weights that lead to a result in use. A traced function has gradients, if zero, for all that lead to any."""
        if not isinstance(self.function, tf.types.experimental.ConcreteFunction):
            return range(sys.maxsize)
        return inputs_reached([self.function.outputs[i] for i in used], self.function.inputs)

    def _tables_reached(self, used: Sequence[int]) -> Container[int]:
        """Ids of the tables that lead to a result in use; a trace has their handles after its inputs."""
        reached = self._reached(used)
        if isinstance(reached, range):
            return {id(table) for table in self.tables}
        captured = self.function.captured_inputs  # type: ignore[attr-defined]  # of a concrete function
        first = len(self.function.inputs) - len(captured)  # type: ignore[attr-defined]  # likewise
        return {
            id(table)
            for table in self.tables
            if any(handle is table.handle and first + i in reached for i, handle in enumerate(captured))
        }


def _counted_rows(gradient: tf.Tensor | tf.IndexedSlices, kept: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """Rows of a table's gradient, none of a replica that stands by; a dense one as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, indices = drop_standby(gradient.values, kept), drop_standby(gradient.indices, kept)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _dense(gradient: tf.Tensor | tf.IndexedSlices | None, weight: tf.Tensor) -> tf.Tensor:
    """What travels in a buffer: zeros for no gradient and for rows, which are noted instead."""
    if isinstance(gradient, tf.IndexedSlices) or gradient is None:
        return tf.zeros_like(weight)
    return gradient


def _floating(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [x for x in tensors if _is_differentiable(x)]


def _is_differentiable(x: tf.Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _untaped(x: tf.Tensor) -> tf.Tensor:
    """Hides a tensor from the outer tapes, which would otherwise prepare for higher orders at a high price."""
    return tf.stop_gradient(x) if _is_differentiable(x) else x
