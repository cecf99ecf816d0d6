"""run: a replica on its device, forward, and, when gradients are asked for, backward on the same device.

A gradient tape differentiates outside of any device scope, so that the backward ops of all replicas would land on one
device. Hence each replica is one op to the outer tape, and its gradient asks a tape of its own, on its own device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.replicas.backward import Backward, Run
from multigpu.engines.tensorflow.replicas.tapes import release_with_the_verb


def run_replica(run: Run, arrived: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Results for what arrived, packed weights and other inputs, differentiable to any order."""

    @custom_gradient
    def forward(*arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        made = [run.forward(arrived)]
        results = made[0].results
        release_with_the_verb(made)
        return results, Backward(run, arrived, results, made).gradient

    with tf.device(run.device):
        return list(forward(*arrived))
