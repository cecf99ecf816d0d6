"""The traces of a replica with parts: one for each set of results from which a gradient comes back."""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTrace, staged_trace
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.trace import trace


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
