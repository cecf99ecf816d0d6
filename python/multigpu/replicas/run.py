"""run: a replica on its device, forward, and, when gradients are asked for, backward on the same device.

A gradient tape differentiates outside of any device scope, so that the backward ops of all replicas would land on one
device. Hence each replica is one op to the outer tape, and its gradient asks a tape of its own, on its own device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from multigpu.private_api.gradients import custom_gradient
from multigpu.replicas.backward import Backward
from multigpu.replicas.replica_run import ReplicaRun
from multigpu.replicas.tapes import release_with_the_verb, untaped
from multigpu.weights.send_reduce import arrive


def run_replica(run: ReplicaRun, buffers: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Results for packed weights and other inputs, differentiable to any order."""

    @custom_gradient
    def forward(*arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        taped = [run.tape(untaped(arrived))]
        results = taped[0].results
        release_with_the_verb(taped)
        return results, Backward(run, arrived, results, taped).gradient

    with tf.device(run.device):
        arrived = [arrive(buffer, bucket) for buffer, bucket in zip(buffers, run.buckets, strict=True)]
        return list(forward(*arrived, *inputs))
