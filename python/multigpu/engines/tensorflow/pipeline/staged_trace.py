"""The traces of a replica with parts, in stages, with the backward pass in the same graph.

There is one for each set of results from which a gradient comes back.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.pipeline.stages import Passes, Stage, cut
from multigpu.engines.tensorflow.replicas.parts import parts_of_ops
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.tapes import is_differentiable
from multigpu.engines.tensorflow.replicas.trace import trace
from multigpu.engines.tensorflow.replicas.traced import Note, Reach, Traced, with_facts


@dataclass(frozen=True)
class StagedTrace:
    """A replica and its gradients, as stages that run on the devices of a group.

    Attributes:
        replica: the replica that was traced.
        traced: what the trace shows that was cut.
        passes: its passes.
        stages: in an order in which they can run.
        homes: for each variable of the replica, the part that reads it first.
    """

    replica: Replica
    traced: Traced
    passes: Passes
    stages: Sequence[Stage]
    homes: Sequence[int]

    @property
    def reach(self) -> Reach:
        """Which weights lead to which results."""
        assert self.traced.reach is not None
        return self.traced.reach


def staged_trace(replica: Replica, used: Sequence[int] | None, tables: Sequence[tf.Variable]) -> StagedTrace:
    """Trace a replica.

    Args:
        replica: the replica.
        used: numbers of the results that a gradient comes back from; None for those that are likely to have one.
        tables: the variables that it reads itself, as far as they are known.
    """
    replica = replace(replica, on_tape=used is not None and not used)
    made: list[Passes] = []

    def run(replica: Replica, note: Note, *inputs: tf.Tensor) -> list[tf.Tensor]:
        results, traced = with_facts(replica, *inputs)
        note(traced)
        candidates = traced.layout.likely_used if used is None else used
        made.append(_passes(inputs, results, [i for i in candidates if is_differentiable(results[i])], tables))
        return results

    replica, traced = trace(replica, run)
    if len(traced.tables) > len(tables):  # it reads variables of TensorFlow, as is known now: they have gradients, too
        return staged_trace(replica, used, traced.tables)
    function, passes = traced.function, made[-1]
    assert function is not None
    ops = function.graph.get_operations()
    parts = parts_of_ops(ops, traced.parts.of_ops(ops[: passes.num_forward]))
    stages = cut(function, parts, passes, traced.parts.sums)
    return StagedTrace(replica, traced, passes, stages, _homes(stages, function.inputs[: len(replica.variables)]))


def _passes(
    inputs: Sequence[tf.Tensor], results: list[tf.Tensor], used: list[int], tables: Sequence[tf.Variable]
) -> Passes:
    """Add the backward pass of used results. Each of its ops knows the op of the forward pass to which it belongs."""
    graph: Any = tf.compat.v1.get_default_graph()
    num_forward = len(graph.get_operations())
    if not used:
        return Passes(results, num_forward, used, [], [], [])
    targets = [results[i] for i in used]
    upstream = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in targets]
    handles = [graph.capture(table.handle) for table in tables]
    sources = [*(x for x in inputs if is_differentiable(x)), *handles]
    found = tf.compat.v1.gradients(targets, sources, upstream, colocate_gradients_with_ops=True)
    of_inputs = iter(found)
    gradients = [next(of_inputs) if is_differentiable(x) else None for x in inputs]
    return Passes(results, num_forward, used, upstream, gradients, list(of_inputs))


def _homes(stages: Sequence[Stage], variables: Sequence[tf.Tensor]) -> list[int]:
    first: dict[str, int] = {}
    for stage in stages:
        for x in stage.takes:
            first.setdefault(x.name, stage.part)
    return [first.get(x.name, 0) for x in variables]


class StagedTraceCache:
    """The traces of a replica, each made when it is needed.

    Attributes:
        first: the trace of its forward pass, with all gradients if they are probably needed.
    """

    def __init__(self, replica: Replica, training: bool) -> None:
        """Trace the replica, with gradients if it is training."""
        self.first = staged_trace(replica, None if training else [], replica.template.tables.trained())
        self._known = {tuple(self.first.passes.used): self.first}

    def using(self, used: Sequence[int]) -> StagedTrace:
        """Return the trace with the gradients of some results."""
        if tuple(used) not in self._known:
            self._known[tuple(used)] = staged_trace(self.first.replica, used, self.first.traced.tables)
        return self._known[tuple(used)]

    @functools.cached_property
    def whole(self) -> Callable[..., list[tf.Tensor]]:
        """The replica as one function, with gradients of any order."""
        function = trace(self.first.replica)[1].function
        assert function is not None
        return function

    @property
    def on_tape(self) -> StagedTrace:
        """Return the trace of only the forward pass, whose stages have gradients of any order.

        Raises:
            ValueError: the gradient of an op is written in Python, and uses tensors of the trace, not of stages.
        """
        of_forward = self.using(())
        graph = of_forward.reach.function.graph.as_graph_def()
        written = [node.name for node in graph.node if "_gradient_op_type" in node.attr]
        if written:
            raise refuse(
                "ops with TensorFlow's own gradients, because you take gradients of gradients, and the template has "
                "synchronized BatchNormalization",
                f"{written[0]!r}, whose gradient is a `tf.custom_gradient`, as in silu",
                "Use another op, or `synchronized=False`.",
            )
        return of_forward
