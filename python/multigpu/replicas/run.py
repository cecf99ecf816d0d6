"""A replica on its device: forward, and, when gradients are asked for, backward on the same device.

A gradient tape differentiates outside of any device scope, so that the backward ops of all replicas would land on one
device. Hence each replica is one op to the outer tape, and its gradient asks a tape of its own, on its own device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from multigpu.cluster.one_worker import OneWorker
from multigpu.private_api.gradients import custom_gradient
from multigpu.replicas.backward import Backward
from multigpu.replicas.replica import Function, Replica
from multigpu.replicas.tapes import Taped, floating, is_differentiable, release_with_the_verb
from multigpu.weights.buckets import Bucket, unpack
from multigpu.weights.gradient_structure import GradientStructure
from multigpu.weights.send_reduce import arrive


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

    def __call__(self, buffers: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Results for packed weights and other inputs, differentiable to any order."""
        with tf.device(self.device):
            arrived = [arrive(buffer, bucket) for buffer, bucket in zip(buffers, self.buckets, strict=True)]
            return list(custom_gradient(self._forward)(*arrived, *inputs))

    def _forward(self, *arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        """The results, and their gradient, for which the run is taped."""
        taped = [self.tape([_untaped(x) for x in arrived])]
        results = taped[0].results
        release_with_the_verb(taped)
        return results, Backward(self, arrived, results, taped).gradient

    def tape(self, arrived: Sequence[tf.Tensor]) -> Taped:
        """A run of the replica under a tape of its own."""
        weights = unpack(arrived[: len(self.buckets)], self.buckets)
        sources = [*weights, *arrived[len(self.buckets) :]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*floating(sources), *self.replica.tables])
            results = list(self.function(*sources))
        return Taped(tape, sources, results)


def _untaped(x: tf.Tensor) -> tf.Tensor:
    """Hides a tensor from the outer tapes, which would otherwise prepare for higher orders at a high price."""
    return tf.stop_gradient(x) if is_differentiable(x) else x
