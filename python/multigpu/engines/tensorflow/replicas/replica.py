"""A replica: the template as a function of everything it reads, which returns everything it would have changed."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.call_arguments import (
    CallArguments,
    flatten_composites,
    open_types,
    restore_composites,
)
from multigpu.engines.tensorflow.batches.split_merge import count_rows, drop_standby, merge, take_rows
from multigpu.engines.tensorflow.cluster.one_worker import OneWorker
from multigpu.engines.tensorflow.replicas.global_batch import GlobalBatchCalls, depending_on
from multigpu.engines.tensorflow.replicas.host_numbers import seeds_on_host
from multigpu.engines.tensorflow.replicas.inner_graphs import as_one_graph
from multigpu.engines.tensorflow.replicas.kept_tensors import Kept
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls
from multigpu.engines.tensorflow.replicas.noise import Draw, SliceNoise, draws_by
from multigpu.engines.tensorflow.replicas.outputs import OutputLayout
from multigpu.engines.tensorflow.replicas.outside_state import refuse_changes, trained_outside
from multigpu.engines.tensorflow.replicas.parts import Parts, scopes_noted
from multigpu.engines.tensorflow.replicas.position import NUM_SCALARS, Position
from multigpu.engines.tensorflow.replicas.row_mixing import check_rows_apart
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope, inside_replica
from multigpu.engines.tensorflow.replicas.stand_alone import (
    find_alone,
    find_alone_by,
    places_with_rows,
    places_with_rows_by,
    stand_alone_as,
)
from multigpu.engines.tensorflow.replicas.state import Updates, is_combined
from multigpu.engines.tensorflow.replicas.template import TemplateParts
from multigpu.engines.tensorflow.replicas.xla import compiled
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.lookups import ways_of_lookup
from multigpu.engines.tensorflow.weights.packing import Packing
from multigpu.engines.tensorflow.weights.place_locate import stored_dtype
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.plan.plan import Plan

Function = Callable[..., list[tf.Tensor]]


class Replica:
    """The template, called on one slice with the values that were sent for its variables.

    All devices share this object: it is traced once, and each device runs the trace.

    Attributes:
        noted: the parts of the template to which ops belong.
        layout: the layout of the results.
        global_batch: the calls to compute from the merged results.
        kept: the attributes of layers that are set to tensors.
        updates: the variables that the template assigns, and how they are sent.
        types: the types in which each weight can be sent, by its id.
        rows_of_tables: how the rows of each table's gradient are added, by its id.
        draws: the known random draws, if it runs op by op.
        packing: what opens and packs buckets on every device.
    """

    noted: Parts
    layout: OutputLayout
    global_batch: GlobalBatchCalls
    kept: list[Kept]
    updates: Updates
    types: dict[int, Types]

    def __init__(self, parts: TemplateParts, batch: CallArguments, alone: bool, workers: OneWorker, plan: Plan) -> None:
        """Prepare the replica.

        Args:
            parts: the parts of the template.
            batch: the arguments of the call.
            alone: whether its slice is the whole global batch.
            workers: the workers whose replicas share statistics of layers.
            plan: the plan of the replicas.
        """
        self._plan = plan
        self._parts = parts
        self._batch = batch
        self._alone = alone
        self._workers = workers
        self._variables = [*parts.weights, *parts.state]
        self._assigned: list[keras.Variable] = []
        self.carried: list[keras.Variable] = []  # carried into and out of branches and loops
        self._known: LayerCalls | None = None  # of the first slice
        self._with_rows: set[tuple[int, str]] = set()  # set to tensors with rows
        self._outside: list[tf.Variable] = []  # variables that are not the template's
        self.weights_of_gradients: dict[tuple, set[int]] = {}  # on which gradients depend, after these were requested
        self.rows_of_tables: dict[int, Rows] = {}
        self.draws: list[Draw] = []
        self.packing = Packing()
        self.on_tape = False  # whether a tape follows sums over slices, from stage to stage

    @property
    def tables(self) -> Sequence[tf.Variable]:
        """The variables that it reads itself and to which gradients flow: tables, and variables unknown to Keras."""
        return [*self._parts.tables.trained(), *self._outside]

    def note_read(self, variables: Iterable[tf.Variable]) -> None:
        """Record variables that a run has read itself."""
        self._outside = trained_outside(variables, self._parts.tables.trained())

    def rows_of(self, table: tf.Variable) -> Rows:
        """Return how the rows of a table's gradient are added."""
        return self.rows_of_tables.get(id(table), Rows.APART)

    @property
    def num_weights(self) -> int:
        """The number of input tensors that are weights."""
        return len(self._parts.weights)

    @property
    def num_variables(self) -> int:
        """The number of input tensors that are values of variables."""
        return len(self._variables)

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """Return the types of its inputs: values of the variables, dense components of a slice, and its position."""
        variables = [tf.TensorSpec(v.shape, stored_dtype(v)) for v in self._variables]
        return [
            *variables,
            *flatten_composites(open_types(self._batch.tensors)),
            *[tf.TensorSpec([], tf.int32)] * NUM_SCALARS,
        ]

    def trace(self, run: Function | None = None) -> tf.types.experimental.ConcreteFunction:
        """Return this replica as one concrete function, whose ops have no device: they run where it is called.

        Args:
            run: the function to trace, by default itself.
        """
        with tf.device(None):
            function = complete_trace(run or self, self.specs, self.carried)
        self.note_captured(function)
        return function

    def note_captured(self, function: tf.types.experimental.ConcreteFunction) -> None:
        """Record what a trace reads itself, and how the rows of weights and tables are added."""
        self.note_read(function.variables)
        if not self._alone:
            refuse_changes(function, [self._parts.template, *self._parts.layers])
        captured: Any = function.captured_inputs
        num_given, num_weights = len(function.inputs) - len(captured), self.num_weights
        handles = {id(handle): num_given + number for number, handle in enumerate(captured)}
        tables = {handles[id(table.handle)]: table for table in self.tables if id(table.handle) in handles}
        no_rows = {*range(self.num_variables), *range(num_given, len(function.inputs))}
        for number, rows in ways_of_lookup(function, no_rows, [*range(num_weights), *tables]).items():
            if number < num_weights:
                weight = id(self._parts.weights[number])
                self.types[weight] = self.types[weight]._replace(rows=rows)
            else:
                self.rows_of_tables[id(tables[number])] = rows

    @property
    def kept_with_rows(self) -> list[Kept]:
        """The attributes whose slices can be merged. Their tensors are the last of the inner layers' tensors."""
        return [each for each in self.kept if each.place in self._with_rows]

    def give_kept(self, merged: Sequence[tf.Tensor]) -> None:
        """Give layers the merged tensors of attributes in which a replica has stored those of its slice."""
        given = iter(merged)
        for each in self.kept_with_rows:
            each.give(list(itertools.islice(given, len(each.tensors))))

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Run the template on a slice.

        Args:
            inputs: values of the variables, dense components of the slice, then the scalars of its `Position`.

        Returns:
            Dense components of outputs, masks and inner layers' tensors, only with rows that count; added losses;
            states of generators of noise; packed updates.
        """
        call = seeds_on_host(self._call_template)
        if self._parts.jit_compile:
            call = compiled(call, inputs)
        results = call(*inputs)
        with_rows, losses, noise, values = self.layout.open(results)
        kept = Position.at_end_of(inputs).kept
        with_rows = [drop_standby(x, kept) for x in with_rows]
        self.updates = Updates(self._assigned)
        pack = seeds_on_host(self.updates.pack)
        packed = pack({id(v): value for v, value in zip(self._assigned, values, strict=True)})
        return [*flatten_composites(with_rows), *losses, *noise, *packed]

    def _call_template(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        position = Position.at_end_of(inputs)
        self.noted = Parts(self._plan.parts, self._devices(position.replica), self.on_tape)
        sent, components = inputs[: len(self._variables)], inputs[len(self._variables) : -NUM_SCALARS]
        slices = restore_composites(self._batch.tensors, list(components))
        outputs, scope, calls = self._noted(slices, sent, position)
        if not self._alone:
            self._parts.statistics.note(calls)
        self.carried += scope.found
        self.global_batch = GlobalBatchCalls(calls) if self._alone else self._left_over(calls, scope, slices, sent)
        if self._alone and not tf.executing_eagerly():
            self._with_rows = places_with_rows(calls)
        self._assigned = [v for v in scope.updated if all(v is not other for other in self.global_batch.variables)]
        losses = [loss for number, loss in enumerate(scope.losses) if number not in self.global_batch.losses]
        self.kept = calls.kept
        inner = [*self.global_batch.tensors, *(x for each in self.kept_with_rows for x in each.tensors)]
        noise = self.global_batch.noise
        self.layout = OutputLayout(outputs, inner, len(losses), len(noise), count_rows(slices[:1]))
        if not (self._alone or tf.executing_eagerly()):
            check_rows_apart(flatten_composites(keras.tree.flatten(outputs)), components, calls, self._batch.training)
        self.types = {id(weight): scope.types(weight) for weight in self._parts.weights}
        values = [scope.value_now(variable) for variable in self._assigned]
        return [*flatten_composites(self.layout.with_rows), *losses, *noise, *values]

    def _devices(self, replica: tf.Tensor) -> Sequence[str]:
        """Return the devices of the parts in a run op by op. A trace does not have them."""
        replicas = self._plan.replicas
        return (
            replicas[int(replica) % len(replicas)] if self._plan.groups and tf.executing_eagerly() else self._plan.parts
        )

    def _noted(
        self, slices: Sequence[tf.Tensor], sent: Sequence[tf.Tensor], position: Position
    ) -> tuple[Any, ReplicaScope, LayerCalls]:
        """Return the template's outputs for a slice, its assignments and added losses, and the calls of its layers."""
        noise, *made = self._run(slices, sent, position)
        if not noise.is_sure:
            self.draws[:] = draws_by(*(self._run_few(slices, sent, rows)[0] for rows in (2, 3)))
            _, *made = self._run(slices, sent, position)
        return made[0], made[1], made[2]

    def _run_few(
        self, slices: Sequence[tf.Tensor], sent: Sequence[tf.Tensor], rows: int
    ) -> tuple[SliceNoise, Any, ReplicaScope, LayerCalls]:
        """Run with so many of the rows, op by op."""
        position = Position(*map(tf.constant, (rows, 0, 0, rows)))
        return self._run([_first_rows(x, rows) for x in slices], sent, position)

    def _run(
        self, slices: Sequence[tf.Tensor], sent: Sequence[tf.Tensor], position: Position
    ) -> tuple[SliceNoise, Any, ReplicaScope, LayerCalls]:
        args, kwargs = self._batch.rebuild(slices)
        scope, noise = ReplicaScope(self._variables, sent, self.carried), SliceNoise(slices, position, self.draws)
        scope.calls = calls = LayerCalls(self._parts.template)
        calls.drawn = scope.drawn
        with self._around(scope, noise, position), calls.noted(self._parts.layers):
            outputs = self._parts.template(*args, **kwargs)
        for each in calls.kept if not (self._alone and tf.executing_eagerly()) else ():
            each.put_back()
        return noise, outputs, scope, calls

    @contextlib.contextmanager
    def _around(self, scope: ReplicaScope, noise: SliceNoise, position: Position) -> Iterator[None]:
        """Make a replica run the code of a `with` block, with its variables."""
        statistics, tables = self._parts.statistics, self._parts.tables
        counts = tf.minimum(position.kept, self._workers.counted) if statistics.layers else position.kept
        shared = statistics.seen_by_layers(counts, self.noted)
        in_parts = scopes_noted(self.noted.scope) if self._plan.groups else contextlib.nullcontext()
        once = self._plan.groups or statistics.layers  # stages and sums over replicas are for one forward pass
        again = None if once else functools.partial(self._around, noise=noise, position=position)
        one_graph = as_one_graph(scope, again)
        with scope, inside_replica(), in_parts, shared, tables.looked_up_by_layers(), noise.of_slice(), one_graph:
            yield

    def _left_over(
        self,
        calls: LayerCalls,
        scope: ReplicaScope,
        slices: Sequence[tf.Tensor],
        sent: Sequence[tf.Tensor],
    ) -> GlobalBatchCalls:
        """Return the losses and variables whose slices do not determine their values for the global batch."""
        of_rows = depending_on(flatten_composites(slices))
        losses = [i for i, loss in enumerate(scope.losses) if i not in calls.means and of_rows(loss)]
        variables = [
            variable
            for variable in scope.updated
            if not is_combined(variable, calls.assigned_by_users) and of_rows(scope.value_now(variable))
        ]
        if not tf.executing_eagerly():
            find_alone(calls, slices)
            self._with_rows = places_with_rows(calls)
        elif self._known:
            stand_alone_as(calls, self._known)
        elif losses or variables or calls.kept:
            again = functools.cache(lambda rows: self._run_few(slices, sent, rows)[-1])
            find_alone_by(calls, slices, again)
            self._with_rows = places_with_rows_by(calls, again)
            self._known = calls
        others = {each.place for each in calls.kept} - self._with_rows
        return GlobalBatchCalls(calls, losses, variables, self.carried, others)


def complete_trace(
    run: Function, specs: Sequence[tf.TypeSpec], carried: Sequence[keras.Variable]
) -> tf.types.experimental.ConcreteFunction:
    """Return a trace whose branches and loops carry all assigned state. Each trace may find more of it."""
    known = -1
    while known != len(carried):
        known = len(carried)
        function = tf.function(run, autograph=False).get_concrete_function(*specs)
    return function


def _first_rows(x: tf.Tensor, rows: int) -> tf.Tensor:
    """Return so many rows of a slice, repeated from the first if it has fewer."""
    size = int(count_rows([x]))
    return merge([take_rows(x, row % size, 1) for row in range(rows)])
