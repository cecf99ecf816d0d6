"""The traces of a replica with parts: one for each set of results from which a gradient comes back."""

from collections.abc import Sequence

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTrace
from multigpu.engines.tensorflow.replicas.replica import Function, Replica


class StagedTraces:
    """The traces of a replica.

    Attributes:
        first: the trace of its forward pass, with all gradients if they are probably needed.
    """

    def __init__(self, replica: Replica, training: bool) -> None:
        """Trace the replica, with gradients if it is training."""
        self._replica = replica
        self.first = StagedTrace(replica, None if training else [])
        self.homes = self.first.homes
        self._whole: Function | None = None
        self._known = {tuple(self.first.used): self.first}

    def using(self, used: Sequence[int]) -> StagedTrace:
        """Return the trace with the gradients of some results."""
        if tuple(used) not in self._known:
            self._known[tuple(used)] = StagedTrace(self._replica, used)
        return self._known[tuple(used)]

    @property
    def whole(self) -> Function:
        """Return the replica as one function, with gradients of any order."""
        if self._whole is None:
            self._whole = self._replica.trace()
        return self._whole

    @property
    def on_tape(self) -> StagedTrace:
        """Return the trace of only the forward pass, whose stages have gradients of any order.

        Raises:
            ValueError: the gradient of an op is written in Python, and uses tensors of the trace, not of stages.
        """
        trace = self.using(())
        graph = trace.function.graph.as_graph_def()
        written = [node.name for node in graph.node if "_gradient_op_type" in node.attr]
        if written:
            raise refuse(
                "ops of TensorFlow with gradients of its own in a template with synchronized BatchNormalization of "
                "which gradients of gradients are taken",
                f"{written[0]!r}, whose gradient is a `tf.custom_gradient`, as that of silu is",
                "Use another one, or `synchronized=False`.",
            )
        return trace
