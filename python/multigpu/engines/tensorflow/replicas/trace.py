"""Trace a replica: one function for all devices, and what the trace shows."""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import tensorflow as tf

from multigpu.engines.tensorflow.batches.split_merge import NUM_SCALARS
from multigpu.engines.tensorflow.private_api.graphs import types_of_ops
from multigpu.engines.tensorflow.private_api.variables import is_seed
from multigpu.engines.tensorflow.replicas.outside_state import refuse_changes, trained_outside
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.template import TemplateState
from multigpu.engines.tensorflow.replicas.traced import Traced
from multigpu.engines.tensorflow.weights.lookups import ways_of_lookup
from multigpu.engines.tensorflow.weights.rows import Rows

Run: TypeAlias = Callable[..., list[tf.Tensor]]


def trace(replica: Replica, run: Run = Replica.__call__) -> tuple[Replica, Traced]:
    """Return the replica that was traced, and what its trace shows.

    It is the given one, but its branches and loops carry all assigned state, it receives all seeds, and it reads copies
    of weights that are looked up in several ways.

    Args:
        replica: the replica.
        run: the function to trace, of the replica and of its inputs. By default, the replica runs.
    """
    while True:
        shown: list[Traced] = []
        with tf.device(None):
            runs = tf.function(functools.partial(run, replica, shown.append), autograph=False)
            function = runs.get_concrete_function(*replica.specs)
        traced = shown[-1]
        if len(traced.carried) != len(replica.carried):  # this trace has found more of the state
            replica = replace(replica, carried=traced.carried)
            continue
        # of Keras' default generator: a second run of the trace has to draw the same noise
        known = set(map(id, replica.template.state))
        if seeds := [v for v in traced.updates.variables if is_seed(v) and id(v) not in known]:
            replica = replace(replica, template=replace(replica.template, state=[*replica.template.state, *seeds]))
            continue
        traced = _with_reads(traced, function, replica)
        copies = _copies(traced, replica.template)
        if replica.alone or copies == replica.template.num_copies:
            return replica, traced
        replica = replace(replica, template=replica.template.with_copies(copies))


def _with_reads(traced: Traced, function: tf.types.experimental.ConcreteFunction, replica: Replica) -> Traced:
    """Return the facts of a trace, with the variables that it reads, and how rows of weights and tables are added."""
    template = replica.template
    if not replica.alone:
        refuse_changes(function, [template.model, *template.layers])
    tables = [*traced.tables, *trained_outside(function.variables, traced.tables)]
    captured: Any = function.captured_inputs
    num_given = len(function.inputs) - len(captured)
    numbers = {id(handle): num_given + number for number, handle in enumerate(captured)}
    of_weights = dict(enumerate(template.weights))
    of_tables = {numbers[id(table.handle)]: id(table) for table in tables if id(table.handle) in numbers}
    position = num_given - NUM_SCALARS
    scalars = range(position - len(replica.batch.scalars), position)
    no_rows = {*range(len(replica.variables)), *scalars, *range(num_given, len(function.inputs))}
    ways = ways_of_lookup(function, no_rows, [*of_weights, *of_tables])
    times = template.num_copies  # a copy is sent alone, whether or not it is looked up
    of_copies = [ways.get(n, Rows.APART if times[id(weight)] > 1 else None) for n, weight in of_weights.items()]
    return replace(
        traced,
        function=function,
        tables=tables,
        types=[types._replace(rows=rows) for types, rows in zip(traced.types, of_copies, strict=True)],
        rows_of_tables={table: ways[number] for number, table in of_tables.items() if number in ways},
    )


def _copies(traced: Traced, template: TemplateState) -> Counter[int]:
    """Return how many copies of each weight to send, by its id.

    It is one for each read, if the rows of several reads would otherwise be mixed. Tables with such rows are sent, too.
    """
    copies = template.num_copies
    for weight, types in zip(template.weights, traced.types, strict=True):
        if types.rows is Rows.UNCLEAR:
            copies[id(weight)] = max(copies[id(weight)], traced.reads.get(id(weight), 0))
    unclear = [table for table, rows in traced.rows_of_tables.items() if rows is Rows.UNCLEAR]
    return copies + Counter({id(table): 2 for table in template.tables.with_variables(unclear)})


def share_a_tape(traced: Traced) -> bool:
    """Return whether all calls of a trace share a tape: TensorFlow keeps one for a `tf.py_function`'s last call."""
    assert traced.function is not None
    return "EagerPyFunc" in types_of_ops(traced.function.graph.as_graph_def())
