"""The trace of a replica with parts, in stages, with its backward pass in the same graph."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.stages import Stage, cut
from multigpu.engines.tensorflow.replicas.parts import parts_of_ops
from multigpu.engines.tensorflow.replicas.reach import Reach
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.tapes import Gradient, is_differentiable


class StagedTrace:
    """A replica and its gradients, as stages that run on the devices of a group.

    Attributes:
        function: the trace that was cut.
        used: the numbers of the results whose gradients it receives.
        results: the results of the replica, in the trace.
        upstream: the gradients of the used results, in the trace.
        gradients: the gradients of all inputs of the replica, in the trace.
        of_tables: the gradients of the tables that it reads itself, in the trace.
        stages: in an order in which they can run.
        sums: placeholders of sums over slices, as `Parts.sums`.
        num_weights: the number of weights, which are its first inputs.
        num_variables: the number of weights and state.
    """

    def __init__(self, replica: Replica, used: Sequence[int] | None) -> None:
        """Trace a replica.

        Args:
            replica: the replica.
            used: numbers of the results that a gradient comes back from; None for those that are likely to have one.
        """
        self._replica = replica
        self._wanted = used
        self.num_weights, self.num_variables = replica.num_weights, replica.num_variables
        self.upstream: list[tf.Tensor] = []
        self.gradients: list[Gradient] = []
        self.of_tables: list[Gradient] = []
        replica.on_tape = used is not None and not used
        known = len(replica.tables)
        self.function = replica.trace(self._run)
        if len(replica.tables) > known:  # it reads variables of TensorFlow, as is known now: they have gradients, too
            self.function = replica.trace(self._run)
        ops = self.function.graph.get_operations()
        self.sums = replica.noted.sums
        self.stages: list[Stage] = cut(
            self.function,
            parts_of_ops(ops, replica.noted.of_ops(ops[: self._num_forward])),
            self._num_forward,
            self.results,
            _components([*self.gradients, *self.of_tables]),
            self.upstream,
            self.sums,
        )

    @property
    def homes(self) -> list[int]:
        """Return for each variable of the replica the part that reads it first."""
        first: dict[int, int] = {}
        for stage in self.stages:
            for x in stage.takes:
                first.setdefault(x.name, stage.part)
        return [first.get(x.name, 0) for x in self.function.inputs[: self.num_variables]]

    @property
    def reach(self) -> Reach:
        """Return which weights lead to which results."""
        return Reach(self.function, self.results, self.num_weights, self._replica.tables)

    def _run(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        self.results = self._replica(*inputs)
        self._num_forward = len(tf.compat.v1.get_default_graph().get_operations())
        candidates = self._replica.layout.likely_used if self._wanted is None else self._wanted
        self.used = [i for i in candidates if is_differentiable(self.results[i])]
        if self.used:
            self._differentiate(inputs)
        return self.results

    def _differentiate(self, inputs: Sequence[tf.Tensor]) -> None:
        """Add the backward pass. Each of its ops knows the op of the forward pass to which it belongs."""
        targets = [self.results[i] for i in self.used]
        self.upstream = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in targets]
        graph: Any = tf.compat.v1.get_default_graph()
        tables = [graph.capture(table.handle) for table in self._replica.tables]
        sources = [*(x for x in inputs if is_differentiable(x)), *tables]
        found = tf.compat.v1.gradients(targets, sources, self.upstream, colocate_gradients_with_ops=True)
        self.of_tables = found[len(found) - len(tables) :]
        rest = iter(found)
        self.gradients = [next(rest) if is_differentiable(x) else None for x in inputs]


def _components(gradients: Sequence[Gradient]) -> list[tf.Tensor]:
    present = [gradient for gradient in gradients if gradient is not None]
    return [x for gradient in present for x in tf.nest.flatten(gradient, expand_composites=True)]
