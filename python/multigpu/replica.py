"""A replica: the template as a function of everything it reads, giving back everything it would have changed."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.batch import Batch, flatten_composites, restore_composites
from multigpu.gradient_notes import GradientNotes
from multigpu.growth import equal_rows, grow_with_rows
from multigpu.masks import mask_of, with_mask
from multigpu.place_locate import read
from multigpu.replica_scope import ReplicaScope
from multigpu.split_merge import count_rows, drop_standby
from multigpu.state import Updates, may_grow
from multigpu.synchronized import SharedStatistics
from multigpu.tables import Tables
from multigpu.template import no_batch_axis


class Result(NamedTuple):
    """What one run of a replica gives: outputs and masks, added losses, packed updates of the state."""

    with_rows: list[tf.Tensor]
    losses: list[tf.Tensor]
    updates: list[tf.Tensor]


class Growth(NamedTuple):
    """What is a sum over rows: for each added loss, whether it is; and the ids of such variables."""

    losses: list[bool]
    variables: set[int]


class Replica:
    """The template, called on one slice with the values that were sent for its variables.

    The same object serves every device: it is traced once and the trace is run on each.

    Attributes:
        updates: the variables that the template assigns, and how they travel.
    """

    def __init__(
        self,
        template: Callable,
        batch: Batch,
        variables: Sequence[keras.Variable],
        statistics: SharedStatistics,
        tables: Tables,
        kept_by_keras: Collection[int],
        jit_compile: bool,
    ) -> None:
        self._template = template
        self._batch = batch
        self._variables = variables
        self._statistics = statistics
        self._tables = tables
        self._kept_by_keras = kept_by_keras
        self._jit_compile = jit_compile
        self._structure: Any = None  # of the outputs
        self._tensors: list[tf.Tensor] = []  # the outputs, then their masks: what has rows, as the template gave it
        self._masked: list[int] = []
        self._num_losses = 0
        self._assigned: list[keras.Variable] = []
        self.updates = Updates([])

    def trace(self, inputs: Sequence[tf.Tensor]) -> Callable[..., list[tf.Tensor]]:
        """This replica as one concrete function, whose ops have no device yet: they run where it is called."""
        slices = range(len(self._variables), len(inputs) - 2)
        specs = [tf.TensorSpec([None, *x.shape[1:]] if i in slices else x.shape, x.dtype) for i, x in enumerate(inputs)]
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
        if self._jit_compile:
            results = tf.function(self._call_template, autograph=False, jit_compile=True)(*inputs)
        else:
            results = self._call_template(*inputs)
        kept = inputs[-2]
        with_rows, losses, values = self._cut(results)
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
        with scope, self._statistics.seen_by_layers(kept), self._tables.looked_up_by_layers():
            outputs = self._template(*args, **kwargs)
        self._describe(outputs, count_rows(slices[:1]), scope)
        values = [scope.get_current_value(variable) for variable in scope.updated]
        return [*flatten_composites(self._tensors), *scope.losses, *values]

    def _describe(self, outputs: Any, rows: tf.Tensor, scope: ReplicaScope) -> None:
        """Notes what the template gave: the same for every replica, and the key to the flat results."""
        flat = keras.tree.flatten_with_path(outputs)
        for path, output in flat:
            _check_batch_axis(path, output, rows)
        masks = [mask_of(output) for _, output in flat]
        self._structure = keras.tree.map_structure(lambda _: 0, outputs)
        self._masked = [position for position, mask in enumerate(masks) if mask is not None]
        self._tensors = [output for _, output in flat] + [masks[position] for position in self._masked]
        self._num_losses = len(scope.losses)
        self._assigned = scope.updated

    def _cut(self, results: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """Flat results, in three: what has rows, added losses, and the rest."""
        rows, losses = len(flatten_composites(self._tensors)), self.num_differentiable()
        with_rows = restore_composites(self._tensors, list(results[:rows]))
        return with_rows, list(results[rows:losses]), list(results[losses:])

    def num_differentiable(self) -> int:
        """How many of the results, from the first on, may carry a gradient: all but the updates."""
        return len(flatten_composites(self._tensors)) + self._num_losses

    def open(self, results: Sequence[tf.Tensor]) -> Result:
        """The flat results of one run, by what they are."""
        return Result(*self._cut(results))

    def growth(self, function: Callable[..., list[tf.Tensor]], slices: Sequence[tf.Tensor]) -> Growth:
        """Which of the added losses, and of the assigned variables, are sums over rows.

        Found by running the replica on made-up rows, unless Keras' own layers alone assigned, which keep means. Where
        that cannot be done, losses are means, and variables are what their `aggregation` says.
        """
        state = [variable for variable in self._assigned if may_grow(variable)]
        declared = {id(variable) for variable in state if variable.aggregation == "sum"}
        alone = not self._statistics.layers and all(isinstance(x, tf.Tensor) for x in slices)
        unknown = [variable for variable in state if id(variable) not in self._kept_by_keras]
        if not alone or not (self._num_losses or unknown):
            return Growth([False] * self._num_losses, declared)

        def run(rows: int) -> list[tf.Tensor]:
            made_up = [equal_rows(x, rows) for x in slices]
            results = function(*map(read, self._variables), *made_up, tf.constant(rows), tf.constant(0))
            _, losses, updates = self._cut(results)
            values = {id(variable): value for variable, value in self.updates.unpack(updates)}
            return [*losses, *(values[id(variable)] - read(variable) for variable in unknown)]

        try:
            grows = grow_with_rows(run)
        except tf.errors.OpError:  # the model does not take made-up rows, or not so many
            return Growth([False] * self._num_losses, declared)
        found = dict(zip(map(id, unknown), grows[self._num_losses :], strict=True))
        told = {number for number, grown in found.items() if grown}
        untold = {number for number, grown in found.items() if grown is None}
        return Growth([bool(grown) for grown in grows[: self._num_losses]], told | (declared & untold))

    def watch(self, merged: Sequence[tf.Tensor], notes: GradientNotes) -> list[tf.Tensor]:
        """Merged tensors and losses, watched under the numbers that their slices have among the results."""
        number, watched = 0, []
        for x in merged:
            components = len(flatten_composites([x]))
            if components == 1:
                x = notes.watch(x, number)
            else:  # ragged or sparse: taken for used
                notes.used.update(range(number, number + components))
            number += components
            watched.append(x)
        return watched

    def outputs(self, with_rows: Sequence[tf.Tensor]) -> Any:
        """Merged tensors in the structure of the template's outputs, masks attached."""
        num_outputs = len(with_rows) - len(self._masked)
        flat = list(with_rows[:num_outputs])
        for position, mask in zip(self._masked, with_rows[num_outputs:], strict=True):
            flat[position] = with_mask(flat[position], mask)
        return keras.tree.pack_sequence_as(self._structure, flat)


def _check_batch_axis(path: tuple, output: Any, rows: tf.Tensor) -> None:
    """Refuses what cannot be merged. A trace leaves the number of rows open; run eagerly, rows can only be compared."""
    if tf.is_tensor(output) and output.shape.rank != 0:
        open_axis = output.shape[0] is None
        if open_axis or (tf.executing_eagerly() and output.shape[0] % max(int(rows), 1) == 0):
            return
    name = ".".join(str(part) for part in path) or "0"
    raise ValueError(no_batch_axis(name, getattr(output, "shape", ())))
