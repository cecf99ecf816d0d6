"""The traces of a replica with parts: one for each set of results that a gradient comes back from."""

from collections.abc import Sequence

from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTrace
from multigpu.engines.tensorflow.replicas.replica import Function, Replica


class StagedTraces:
    """The traces of a replica.

    Attributes:
        first: the trace of its forward pass, with all gradients if these are likely to be asked for.
    """

    def __init__(self, replica: Replica, training: bool) -> None:
        """Traces the replica, with gradients if it is training."""
        self._replica = replica
        self.first = StagedTrace(replica, None if training else [])
        self.homes = self.first.homes
        self._known = {tuple(self.first.used): self.first}
        self._whole: Function | None = None

    def using(self, used: Sequence[int]) -> StagedTrace:
        """The trace with the gradients of some results."""
        if tuple(used) not in self._known:
            self._known[tuple(used)] = StagedTrace(self._replica, used)
        return self._known[tuple(used)]

    @property
    def whole(self) -> Function:
        """The replica as one function, with gradients of any order."""
        if self._whole is None:
            self._whole = self._replica.trace()
        return self._whole
