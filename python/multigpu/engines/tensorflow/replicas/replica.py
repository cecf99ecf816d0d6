"""A replica: the template as a function of everything it reads, which returns everything it would have changed."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.base.replaced import ONE_AT_A_TIME
from multigpu.engines.tensorflow.batches.call_arguments import (
    CallArguments,
    flatten_composites,
    open_types,
    restore_composites,
)
from multigpu.engines.tensorflow.batches.split_merge import NUM_SCALARS, Position, count_rows, merge, take_rows
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.replicas.closed_shapes import close_shapes
from multigpu.engines.tensorflow.replicas.global_batch import GlobalBatchCalls, depending_on
from multigpu.engines.tensorflow.replicas.host_numbers import seeds_on_host
from multigpu.engines.tensorflow.replicas.inner_graphs import as_one_graph
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls
from multigpu.engines.tensorflow.replicas.noise import Draw, SliceNoise, draws_by
from multigpu.engines.tensorflow.replicas.outputs import OutputLayout
from multigpu.engines.tensorflow.replicas.parts import Parts, scopes_noted
from multigpu.engines.tensorflow.replicas.row_mixing import check_rows_apart
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope, inside_replica
from multigpu.engines.tensorflow.replicas.stand_alone import find_alone, find_alone_by, stand_alone_as
from multigpu.engines.tensorflow.replicas.state import Updates, is_combined
from multigpu.engines.tensorflow.replicas.sync_batch_norm import normalized_by_slices
from multigpu.engines.tensorflow.replicas.tapes import untaped
from multigpu.engines.tensorflow.replicas.template import OfTrace, TemplateState
from multigpu.engines.tensorflow.replicas.traced import Note, Traced
from multigpu.engines.tensorflow.replicas.xla import compiled
from multigpu.engines.tensorflow.weights.buckets import Types, as_stored
from multigpu.engines.tensorflow.weights.place_locate import stored_dtype
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.plan.plan import Plan


class _Run(NamedTuple):
    """One run of the template, with its outputs, its assignments and added losses, and the calls of its layers."""

    outputs: Any
    scope: ReplicaScope
    calls: LayerCalls
    noise: SliceNoise


@dataclass(frozen=True)
class Replica:
    """The template, called on one slice with the values that were sent for its variables.

    Attributes:
        template: the state of the template.
        batch: the arguments of the call.
        alone: whether its slice is the whole global batch.
        workers: the workers whose replicas share statistics of layers.
        plan: the plan of the replicas.
        rows: the number of rows of each slice. None if it is unknown, or if slices differ.
        carried: the variables that are carried into and out of branches and loops.
        draws: the known random draws, if it runs op by op.
        of_trace: what a trace has shown, if it runs op by op.
        like: the calls of layers for another slice, if it runs op by op.
        on_tape: whether a tape follows sums over slices, from stage to stage.
        cut: the numbers of the results from which no gradient comes back.
    """

    template: TemplateState
    batch: CallArguments
    alone: bool
    workers: Reduction
    plan: Plan
    rows: int | None = None
    carried: Sequence[keras.Variable] = ()
    draws: Sequence[Draw] = ()
    of_trace: OfTrace = field(default_factory=OfTrace)
    like: LayerCalls | None = None
    on_tape: bool = False
    cut: frozenset[int] = frozenset()

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables whose values are its first inputs."""
        return [*self.template.weights, *self.template.state]

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """Return the types of its inputs: values of the variables, components of a slice, scalars, its position."""
        return [
            *(tf.TensorSpec(v.shape, stored_dtype(v)) for v in self.variables),
            *flatten_composites(open_types(self.batch.tensors)),
            *(tf.TensorSpec([], x.dtype) for x in self.batch.scalars),
            *[tf.TensorSpec([], tf.int32)] * NUM_SCALARS,
        ]

    @property
    def types_op_by_op(self) -> list[Types]:
        """The types in which weights are sent, if those of gradients are known only with these."""
        ways = {number: iter(of_copies) for number, of_copies in self.of_trace.ways.items()}
        return [as_stored(v)._replace(rows=next(ways.get(id(v), iter([Rows.APART])))) for v in self.template.weights]

    def __call__(self, note: Note, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Run the template on a slice.

        Args:
            note: takes what the run has shown.
            inputs: values of the variables, dense components of the slice, scalars of the call, then its `Position`.

        Returns:
            Dense components of outputs, masks and inner layers' tensors, only with rows that count; added losses;
            states of generators of noise; packed updates.
        """
        shown: list[Traced] = []
        call = functools.partial(self._call_template, shown.append)
        results = compiled(call, *inputs) if self.template.jit_compile else call(*inputs)
        traced = shown[-1]
        note(traced)
        with_rows, losses, noise, values = traced.layout.open(results)
        with_rows = traced.layout.counted(with_rows, Position.at_end_of(inputs))
        with seeds_on_host():
            packed = untaped(traced.updates.pack(values))  # no gradient comes back from new state
        if self.rows and not tf.executing_eagerly():
            close_shapes(self._slices(inputs), self.rows)
        return [*flatten_composites(with_rows), *losses, *noise, *packed]

    def _call_template(self, note: Note, *inputs: tf.Tensor) -> list[tf.Tensor]:
        with seeds_on_host():
            parts = Parts(self.plan.parts, self._devices(Position.at_end_of(inputs).replica), self.on_tape)
            draws = self.draws
            run = self._run(inputs, parts, draws)
            if not run.noise.is_sure:
                draws = draws_by(*(self._run_few(inputs, parts, rows).noise for rows in (2, 3)))
                run = self._run(inputs, parts, draws)
            return self._results(run, note, inputs, parts, draws)

    def _results(
        self, run: _Run, note: Note, inputs: Sequence[tf.Tensor], parts: Parts, draws: Sequence[Draw]
    ) -> list[tf.Tensor]:
        """Return the results of a run, and note what it has shown."""
        outputs, scope, calls, _ = run
        slices = self._slices(inputs)
        carried = [*self.carried, *scope.found]
        losses, variables, others = self._left_over(run, inputs, parts)
        global_batch = GlobalBatchCalls(calls, losses, variables, carried, others)
        assigned = [v for v in scope.updated if all(v is not other for other in variables)]
        inner = [*global_batch.tensors, *(x for each in calls.kept_with_rows for x in each.tensors)]
        added = [loss for number, loss in enumerate(scope.losses) if number not in losses]
        of_rows = depending_on([*flatten_composites(slices), *Position.at_end_of(inputs)])
        numbers = len(added), len(global_batch.noise), count_rows(slices[:1])
        layout = OutputLayout(outputs, inner, *numbers, of_rows, self.of_trace)
        if not (self.alone or tf.executing_eagerly()):
            components = flatten_composites(slices)
            check_rows_apart(flatten_composites(keras.tree.flatten(outputs)), components, calls)
        sent = [scope.types(weight) for weight in self.template.weights]
        same = [] if tf.executing_eagerly() else [id(v) for v in assigned if not of_rows(scope.value_now(v))]
        shown = Traced(
            calls=calls,
            parts=parts,
            layout=layout,
            global_batch=global_batch,
            updates=Updates(assigned, same),
            types=self.types_op_by_op if tf.executing_eagerly() else sent,
            reads=scope.num_reads(),
            carried=carried,
            draws=draws,
            of_slices=() if self.alone else normalized_by_slices(calls),
            tables=self.template.tables.trained(),
            rows_of_tables={number: way for number, (way, *_) in self.of_trace.ways.items()},
        )
        note(shown)
        values = [scope.value_now(variable) for variable in assigned]
        results = [*flatten_composites(layout.with_rows), *added, *global_batch.noise, *values]
        return [tf.stop_gradient(x) if number in self.cut else x for number, x in enumerate(results)]

    def _slices(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the slices among the inputs."""
        num_scalars = NUM_SCALARS + len(self.batch.scalars)
        return restore_composites(self.batch.tensors, inputs[len(self.variables) : -num_scalars])

    def _scalars(self, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Return the scalars of the call among the inputs."""
        return inputs[len(inputs) - NUM_SCALARS - len(self.batch.scalars) : -NUM_SCALARS]

    def _devices(self, replica: tf.Tensor) -> Sequence[str]:
        """Return the devices of the parts in a run op by op. A trace does not have them."""
        replicas = self.plan.replicas
        return (
            replicas[int(replica) % len(replicas)] if self.plan.groups and tf.executing_eagerly() else self.plan.parts
        )

    def _run_few(self, inputs: Sequence[tf.Tensor], parts: Parts, rows: int) -> _Run:
        """Run with so many of the rows, op by op."""
        few = flatten_composites([_first_rows(x, rows) for x in self._slices(inputs)])
        position = Position(*map(tf.constant, (rows, 0, 0, rows)))
        return self._run([*inputs[: len(self.variables)], *few, *self._scalars(inputs), *position], parts, self.draws)

    def _run(self, inputs: Sequence[tf.Tensor], parts: Parts, draws: Sequence[Draw]) -> _Run:
        sent, slices, position = inputs[: len(self.variables)], self._slices(inputs), Position.at_end_of(inputs)
        args, kwargs = self.batch.rebuild(slices, self._scalars(inputs))
        scope, noise = ReplicaScope(self.variables, sent, self.carried), SliceNoise(slices, position, draws)
        scope.calls = calls = LayerCalls(self.template.model)
        calls.drawn = scope.drawn
        with ONE_AT_A_TIME:
            with self._around(scope, noise, position, parts), calls.noted(self.template.layers):
                outputs = self.template.model(*args, **kwargs)
            for each in calls.kept if not (self.alone and tf.executing_eagerly()) else ():
                each.put_back()
        return _Run(outputs, scope, calls, noise)

    @contextlib.contextmanager
    def _around(self, scope: ReplicaScope, noise: SliceNoise, position: Position, parts: Parts) -> Iterator[None]:
        """Make a replica run the code of a `with` block, with its variables."""
        statistics, tables = self.template.statistics, self.template.tables
        counts = tf.minimum(position.kept, self.workers.counted) if statistics.layers else position.kept
        shared = statistics.seen_by_layers(counts, parts)
        in_parts = scopes_noted(parts.scope) if self.plan.groups else contextlib.nullcontext()
        once = self.plan.groups or statistics.layers  # stages and sums over replicas are for one forward pass
        again = None if once else functools.partial(self._around, noise=noise, position=position, parts=parts)
        one_graph = as_one_graph(scope, again, position.kept)
        with scope, inside_replica(), in_parts, shared, tables.looked_up_by_layers(), noise.of_slice(), one_graph:
            yield

    def _left_over(
        self, run: _Run, inputs: Sequence[tf.Tensor], parts: Parts
    ) -> tuple[list[int], list[keras.Variable], set[tuple[int, str]]]:
        """Return the losses, variables and attributes whose slices do not determine them for the global batch."""
        _, scope, calls, _ = run
        slices = self._slices(inputs)
        losses, variables = [], []
        if not self.alone:
            of_rows = depending_on(flatten_composites(slices))
            losses = [i for i, loss in enumerate(scope.losses) if i not in calls.means and of_rows(loss)]
            variables = [
                variable
                for variable in scope.updated
                if not is_combined(variable, calls.assigned_by_users) and of_rows(scope.value_now(variable))
            ]
        if not tf.executing_eagerly():
            find_alone(calls, slices)
        elif self.like and self.like.places_with_rows is not None:
            stand_alone_as(calls, self.like)
        elif not self.alone and (losses or variables or calls.kept):
            find_alone_by(calls, slices, lambda rows: self._run_few(inputs, parts, rows).calls)
        others = {each.place for each in calls.kept} - (calls.places_with_rows or set())
        return losses, variables, set() if self.alone else others


def _first_rows(x: tf.Tensor, rows: int) -> tf.Tensor:
    """Return so many rows of a slice, repeated from the first if it has fewer."""
    size = int(count_rows([x]))
    return merge([take_rows(x, row % size, 1) for row in range(rows)])
