"""run: a replica on its device, forward, and if gradients are needed, backward on the same device.

A gradient tape differentiates outside of any device scope, so the backward ops of all replicas would run on one device.
So each replica is one op for the outer tape, and its gradient uses its own tape, on its own device.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.replicas.backward import Backward, Run
from multigpu.engines.tensorflow.replicas.tapes import release_with_the_verb

R = TypeVar("R", bound=Run)


def run_replica(run: R, arrived: Sequence[tf.Tensor]) -> tuple[R, list[tf.Tensor]]:
    """Return the run with what it has shown, and results for packed weights and other inputs.

    The results are differentiable to any order: outputs and losses, not the updates of the state.
    """
    runs: list[R] = []
    all_results: list[tf.Tensor] = []

    @custom_gradient
    def forward(*arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        done, first = run.forward(arrived)
        runs.append(done)
        made, results = [first], first.results
        release_with_the_verb(made)
        all_results.extend(results)
        differentiable = done.differentiable(results)
        return [results[i] for i in differentiable], Backward(done, arrived, results, made).gradient

    with tf.device(run.device):
        given = forward(*arrived)
    differentiable = dict(zip(runs[0].differentiable(all_results), given, strict=True))
    return runs[0], [differentiable.get(i, x) for i, x in enumerate(all_results)]
