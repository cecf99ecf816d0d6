"""A replica: the template as a function of everything it reads, giving back everything it would have changed."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.batch import Batch, flatten_composites, open_types, restore_composites
from multigpu.cluster.workers import Workers
from multigpu.growth import equal_rows, grow_with_rows
from multigpu.layout import Layout
from multigpu.parcels import Types
from multigpu.parts import Parts
from multigpu.place_locate import read
from multigpu.rematerialized import computed_once
from multigpu.replica_scope import ReplicaScope
from multigpu.split_merge import count_rows, drop_standby
from multigpu.state import Updates, may_grow

_in_replica: contextvars.ContextVar[bool] = contextvars.ContextVar("in_replica", default=False)


def in_replica() -> bool:
    """Whether this code is being run by a replica."""
    return _in_replica.get()


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    token = _in_replica.set(True)
    try:
        yield
    finally:
        _in_replica.reset(token)


class Growth(NamedTuple):
    """What is a sum over rows: for each added loss, whether it is; and the ids of such variables."""

    losses: list[bool]
    variables: set[int]


class Replica:
    """The template, called on one slice with the values that were sent for its variables.

    The same object serves every device: it is traced once and the trace is run on each.

    Attributes:
        layout: what the results are.
        updates: the variables that the template assigns, and how they travel.
        types: the types in which each weight can travel, by its id.
    """

    layout: Layout
    updates: Updates
    types: dict[int, Types]

    def __init__(self, parts: Parts, batch: Batch, workers: Workers | None = None) -> None:
        self._parts = parts
        self._batch = batch
        self._workers = workers
        self._variables = [*parts.weights, *parts.state]
        self._assigned: list[keras.Variable] = []

    def trace(self, inputs: Sequence[tf.Tensor]) -> Callable[..., list[tf.Tensor]]:
        """This replica as one concrete function, whose ops have no device yet: they run where it is called."""
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
        specs[len(self._variables) : -2] = flatten_composites(open_types(self._batch.tensors))
        with tf.device(None):
            return tf.function(self, autograph=False).get_concrete_function(*specs)

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Runs the template on a slice.

        Args:
            inputs: values of the variables, dense components of the slice, then two scalars: the rows that count
                (0 for a replica that stands by) and the number of the replica.

        Returns:
            Dense components of outputs and masks, without rows that do not count; added losses; packed updates.
        """
        call = self._call_template
        if self._parts.jit_compile:
            call = tf.function(call, autograph=False, jit_compile=True)
        results = call(*inputs)
        with_rows, losses, values = self.layout.open(results)
        kept = inputs[-2]
        with_rows = [drop_standby(x, kept) for x in with_rows]
        self.updates = Updates(self._assigned)
        return [
            *flatten_composites(with_rows),
            *losses,
            *self.updates.pack({id(v): value for v, value in zip(self._assigned, values, strict=True)}),
        ]

    def _call_template(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        sent, components = inputs[: len(self._variables)], inputs[len(self._variables) : -2]
        slices = restore_composites(self._batch.tensors, list(components))
        args, kwargs = self._batch.rebuild(slices)
        kept, replica = inputs[-2:]
        scope = ReplicaScope(self._variables, sent, replica)
        statistics, tables = self._parts.statistics, self._parts.tables
        shared = statistics.seen_by_layers(kept, self._workers)
        with scope, _inside(), shared, tables.looked_up_by_layers(), computed_once():
            outputs = self._parts.call(*args, **kwargs)
        self.layout = Layout(outputs, len(scope.losses), count_rows(slices[:1]))
        self.types = {id(weight): scope.types(weight) for weight in self._parts.weights}
        self._assigned = scope.updated
        values = [scope.value_now(variable) for variable in scope.updated]
        return [*flatten_composites(self.layout.with_rows), *scope.losses, *values]

    def growth(self, function: Callable[..., list[tf.Tensor]], slices: Sequence[tf.Tensor]) -> Growth:
        """Which of the added losses, and of the assigned variables, are sums over rows.

        Found by running the replica on made-up rows, unless Keras' own layers alone assigned, which keep means. Where
        that cannot be done, losses are means, and variables are what their `aggregation` says.
        """
        num_losses = self.layout.num_losses
        state = [variable for variable in self._assigned if may_grow(variable)]
        declared = {id(variable) for variable in state if variable.aggregation == "sum"}
        alone = not self._parts.statistics.layers and all(isinstance(x, tf.Tensor) for x in slices)
        unknown = [variable for variable in state if id(variable) not in self._parts.kept_by_keras]
        if not alone or not (num_losses or unknown):
            return Growth([False] * num_losses, declared)

        def run(rows: int) -> list[tf.Tensor]:
            made_up = [equal_rows(x, rows) for x in slices]
            results = function(*map(read, self._variables), *made_up, tf.constant(rows), tf.constant(0))
            _, losses, updates = self.layout.open(results)
            values = {id(variable): value for variable, value in self.updates.unpack(updates)}
            return [*losses, *(values[id(variable)] - read(variable) for variable in unknown)]

        try:
            grows = grow_with_rows(run)
        except tf.errors.OpError:  # the model does not take made-up rows, or not so many
            return Growth([False] * num_losses, declared)
        found = dict(zip(map(id, unknown), grows[num_losses:], strict=True))
        told = {number for number, grown in found.items() if grown}
        untold = {number for number, grown in found.items() if grown is None}
        return Growth([bool(grown) for grown in grows[:num_losses]], told | (declared & untold))
