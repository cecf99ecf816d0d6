"""The facts that a run of a replica shows besides its results: a trace once, a run op by op for its slice."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.replicas.global_batch import GlobalBatchCalls
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls
from multigpu.engines.tensorflow.replicas.noise import Draw
from multigpu.engines.tensorflow.replicas.outputs import OutputLayout
from multigpu.engines.tensorflow.replicas.parts import Parts
from multigpu.engines.tensorflow.replicas.reach import Reach
from multigpu.engines.tensorflow.replicas.state import Updates
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.rows import Rows

Note: TypeAlias = Callable[["Traced"], None]


@dataclass(frozen=True, eq=False)
class Traced:
    """The facts that a run has shown.

    A run gives them to a `Note`, and gives back only tensors: a graph keeps all that its function gives back, and
    TensorFlow keeps the graphs of custom gradients, such as that of silu. It would keep the template, too.

    Attributes:
        calls: the calls of layers.
        parts: the parts of the template to which ops belong.
        layout: the layout of the results.
        global_batch: the calls to compute from the merged results.
        updates: the variables that the template assigns, and how they are sent.
        types: the types in which each weight can be sent.
        reads: how often each variable was read, by its id.
        carried: the variables that a branch or loop assigns. Only a run that carries all of them is complete.
        draws: the random draws of a run op by op.
        of_slices: the layers that used the statistics of a slice.
        tables: the variables that it reads itself and to which gradients flow: tables, and variables unknown to Keras.
        rows_of_tables: how the rows of each table's gradient are added, by its id.
        function: the trace, whose ops have no device: they run on the device of the call. None for a run op by op.
    """

    calls: LayerCalls
    parts: Parts
    layout: OutputLayout
    global_batch: GlobalBatchCalls
    updates: Updates
    types: Sequence[Types]
    reads: Mapping[int, int]
    carried: Sequence[keras.Variable]
    draws: Sequence[Draw]
    of_slices: Sequence[keras.Layer]
    tables: Sequence[tf.Variable]
    rows_of_tables: Mapping[int, Rows]
    function: tf.types.experimental.ConcreteFunction | None = None

    def rows_of(self, table: tf.Variable) -> Rows:
        """Return how the rows of a table's gradient are added."""
        return self.rows_of_tables.get(id(table), Rows.APART)

    @functools.cached_property
    def reach(self) -> Reach | None:
        """Which weights lead to which results. Unknown op by op, where all tensors with a gradient lead to one."""
        if self.function is None:
            return None
        return Reach(self.function, self.function.outputs, len(self.types), self.tables)

    def give_kept(self, merged: Sequence[tf.Tensor]) -> None:
        """Give layers the merged tensors of attributes in which a replica has stored those of its slice."""
        given = iter(merged)
        for each in self.calls.kept_with_rows:
            each.give(list(itertools.islice(given, len(each.tensors))))


def with_facts(run: Callable[..., list[tf.Tensor]], *inputs: tf.Tensor) -> tuple[list[tf.Tensor], Traced]:
    """Return the results of a run, and what it has shown."""
    shown: list[Traced] = []
    return run(shown.append, *inputs), shown[-1]
