"""One replica on its device, which can be run under a tape of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from multigpu.cluster.one_worker import OneWorker
from multigpu.replicas.replica import Function, Replica
from multigpu.replicas.tapes import Taped, floating
from multigpu.weights.buckets import Bucket, unpack
from multigpu.weights.gradient_structure import GradientStructure


@dataclass
class ReplicaRun:
    """One replica on its device.

    Attributes:
        replica: what is run.
        function: itself or its trace, a function of weights and `inputs`, the last but one of which is the rows that
            count.
        buckets: how the weights are packed.
        device: name of the device.
        number: which replica this is.
        structure: what the owners have to know of the gradient beside its buffers.
        workers: over which the rows of tables are reduced.
    """

    replica: Replica
    function: Function
    buckets: Sequence[Bucket]
    device: str
    number: int
    structure: GradientStructure
    workers: OneWorker

    def tape(self, arrived: Sequence[tf.Tensor]) -> Taped:
        """A run of the replica under a tape of its own."""
        weights = unpack(arrived[: len(self.buckets)], self.buckets)
        sources = [*weights, *arrived[len(self.buckets) :]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*floating(sources), *self.replica.tables])
            results = list(self.function(*sources))
        return Taped(tape, sources, results)
