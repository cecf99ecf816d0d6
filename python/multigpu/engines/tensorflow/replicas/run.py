"""run: a replica on its device, forward, and if gradients are needed, backward on the same device.

A gradient tape differentiates outside of any device scope, so the backward ops of all replicas would run on one device.
So each replica is one op for the outer tape, and its gradient uses its own tape, on its own device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.replicas.backward import Backward, Run
from multigpu.engines.tensorflow.replicas.tapes import release_with_the_verb


def run_replica(run: Run, arrived: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return results for packed weights and other inputs, differentiable to any order."""

    @custom_gradient
    def forward(*arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        made = [run.forward(arrived)]
        results = made[0].results
        release_with_the_verb(made)
        return results, Backward(run, arrived, results, made).gradient

    with tf.device(run.device):
        return list(forward(*arrived))
