"""spread: one batch, many devices. split → send → run → merge, and the state kept once."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.batch import Batch, flatten_composites
from multigpu.place_locate import locate, read
from multigpu.plan import Plan
from multigpu.replica import Replica
from multigpu.run import Run
from multigpu.send_reduce import Parcel, make_parcels, send, unpack
from multigpu.split_merge import count_rows, merge, share_rows, split
from multigpu.state import weighted_mean


class Merged(NamedTuple):
    """What one device would have given: outputs with their masks, and the losses that layers added."""

    outputs: Any
    losses: list[tf.Tensor]


def spread(
    template: Callable,
    batch: Batch,
    weights: Sequence[keras.Variable],
    state: Sequence[keras.Variable],
    plan: Plan,
    statistics: Callable[[tf.Tensor], AbstractContextManager],
    *,
    jit_compile: bool = False,
    eager: bool = False,
) -> Merged:
    """Runs the template on one batch, spread over the devices of the plan, and updates its state once.

    Args:
        template: the model, or how to call it.
        batch: the arguments of the call.
        weights: variables that are trained: gradients flow back to them.
        state: the template's other variables.
        plan: where to work.
        statistics: for the number of rows that count, a scope in which layers see the whole batch's statistics.
        jit_compile: whether XLA compiles the replicas.
        eager: whether to run the template op by op instead of tracing it.
    """
    num_replicas = len(plan.devices)
    connected: set[int] = set()
    with tf.device("CPU:0"):
        shares = share_rows(count_rows(batch.tensors), num_replicas)
        slices = list(zip(*(split(x, shares) for x in batch.tensors), strict=True))
    parcels, buffers = _send(weights, num_replicas, connected)
    state_parcels, state_buffers = _send(state, num_replicas, set())

    replica = Replica(template, batch, [*weights, *state], statistics, jit_compile)
    function: Callable | None = replica if eager else None
    results = []
    for number, device in enumerate(plan.devices):
        with tf.device(device):
            values = [
                tf.stop_gradient(x) if x.dtype.is_floating else x for x in unpack(state_buffers[number], state_parcels)
            ]
            inputs = [*values, *flatten_composites(slices[number]), shares[number].kept, tf.constant(number)]
        if function is None:
            function = replica.trace([*(read(v) for v in weights), *inputs])
        run = Run(function, lambda: replica.num_differentiable, parcels, device, connected)
        results.append(replica.open(run(buffers[number], inputs)))

    kept = [share.kept for share in shares]
    with tf.device(plan.merge_device):
        with_rows = [merge(list(tensors)) for tensors in zip(*(rows for rows, _, _ in results), strict=True)]
        losses = [weighted_mean(list(values), kept) for values in zip(*(added for _, added, _ in results), strict=True)]
    replica.updates.assign([updates for _, _, updates in results], kept)
    return Merged(replica.outputs(with_rows), losses)


def _send(
    variables: Sequence[keras.Variable], num_replicas: int, connected: set[int]
) -> tuple[list[Parcel], list[list[tf.Tensor]]]:
    values = [read(variable) for variable in variables]
    owners = [locate(variable) for variable in variables]
    parcels = make_parcels([(o, x.dtype, tuple(x.shape)) for o, x in zip(owners, values, strict=True)])
    return parcels, send(values, parcels, num_replicas, connected)
