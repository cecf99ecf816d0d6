"""Trace a replica: one function for all devices, and what the trace shows."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import tensorflow as tf

from multigpu.engines.tensorflow.replicas.outside_state import refuse_changes, trained_outside
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.traced import Traced, value_apart
from multigpu.engines.tensorflow.weights.lookups import ways_of_lookup

Run: TypeAlias = Callable[..., tuple[list[tf.Tensor], Traced]]


def trace(replica: Replica, run: Run = Replica.__call__, before: Sequence[tf.TypeSpec] = ()) -> Traced:
    """Return what a trace of a replica shows, whose branches and loops carry all assigned state.

    Args:
        replica: the replica.
        run: the function to trace, of the replica and of its inputs. By default, the replica runs.
        before: the types of inputs of that function before those of the replica.
    """
    while True:
        tensors, values = value_apart(functools.partial(run, replica))
        with tf.device(None):
            function = tf.function(tensors, autograph=False).get_concrete_function(*before, *replica.specs)
        traced = values[-1]
        if len(traced.carried) == len(replica.carried):
            return _with_reads(traced, function, replica, len(before))
        replica = replace(replica, carried=traced.carried)  # this trace has found more of the state


def _with_reads(
    traced: Traced, function: tf.types.experimental.ConcreteFunction, replica: Replica, num_before: int
) -> Traced:
    """Return what a trace shows, with what it reads itself, and how the rows of weights and tables are added."""
    template = replica.template
    if not replica.alone:
        refuse_changes(function, [template.model, *template.layers])
    tables = [*traced.tables, *trained_outside(function.variables, traced.tables)]
    captured: Any = function.captured_inputs
    num_given = len(function.inputs) - len(captured)
    numbers = {id(handle): num_given + number for number, handle in enumerate(captured)}
    of_weights = {num_before + number: id(weight) for number, weight in enumerate(template.weights)}
    of_tables = {numbers[id(table.handle)]: id(table) for table in tables if id(table.handle) in numbers}
    no_rows = {*range(num_before + len(replica.variables)), *range(num_given, len(function.inputs))}
    ways = ways_of_lookup(function, no_rows, [*of_weights, *of_tables])
    rows = {(of_weights | of_tables)[number]: way for number, way in ways.items()}
    return replace(
        traced,
        function=function,
        tables=tables,
        types={weight: types._replace(rows=rows.get(weight)) for weight, types in traced.types.items()},
        rows_of_tables={table: rows[table] for table in of_tables.values() if table in rows},
    )


def share_a_tape(traced: Traced) -> bool:
    """Return whether all calls of a trace share a tape: TensorFlow keeps one for a `tf.py_function`'s last call."""
    assert traced.function is not None
    definition = traced.function.graph.as_graph_def()
    bodies = [definition.node, *(called.node_def for called in definition.library.function)]
    return any(node.op == "EagerPyFunc" for body in bodies for node in body)
