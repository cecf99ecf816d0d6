"""spread: one batch, many devices. split → send → run → merge, and the state kept once."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.batch import Batch, flatten_composites
from multigpu.gradient_notes import GradientNotes
from multigpu.growth import merge_losses
from multigpu.place_locate import read
from multigpu.plan import Plan
from multigpu.replica import Replica, Result
from multigpu.run import Run
from multigpu.send_reduce import parcels_of, send, send_once, unpack
from multigpu.split_merge import Rows, count_rows, merge, share_rows, split
from multigpu.synchronized import SharedStatistics
from multigpu.tables import Tables


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
    statistics: SharedStatistics,
    tables: Tables,
    kept_by_keras: Collection[int],
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
        statistics: the layers that want statistics of the whole batch.
        tables: the layers whose tables are not sent.
        kept_by_keras: ids of the state that Keras' own layers keep.
        jit_compile: whether XLA compiles the replicas.
        eager: whether to run the template op by op instead of tracing it.
    """
    notes = GradientNotes()
    parcels = parcels_of(weights)
    with tf.device("CPU:0"):
        shares = share_rows(count_rows(batch.tensors), len(plan.devices))
        slices = list(zip(*(split(x, shares) for x in batch.tensors), strict=True))
    buffers = send(weights, parcels, len(plan.devices), notes)
    inputs = _other_inputs(slices, shares, state, plan)

    replica = Replica(template, batch, [*weights, *state], statistics, tables, kept_by_keras, jit_compile)
    function = replica if eager else replica.trace([*map(read, weights), *inputs[0]])
    results = []
    for number, device in enumerate(plan.devices):
        run = Run(function, replica.num_differentiable, parcels, device, number, tables.trained(), notes)
        results.append(replica.open(run(buffers[number], inputs[number])))

    kept = [share.kept for share in shares]
    growth = replica.growth(function, slices[0])
    replica.updates.assign([result.updates for result in results], kept, growth.variables)
    return _merge(results, kept, replica, growth.losses, plan, notes)


def _other_inputs(
    slices: Sequence[Sequence[tf.Tensor]], shares: Sequence[Rows], state: Sequence[keras.Variable], plan: Plan
) -> list[list[tf.Tensor]]:
    """What each replica takes besides weights: values of the state, its slice, its rows, its number."""
    parcels = parcels_of(state)
    buffers = send_once(state, parcels)
    inputs = []
    for number, device in enumerate(plan.devices):
        with tf.device(device):
            values = unpack(buffers, parcels)
            inputs.append([*values, *flatten_composites(slices[number]), shares[number].kept, tf.constant(number)])
    return inputs


def _merge(
    results: Sequence[Result],
    kept: Sequence[tf.Tensor],
    replica: Replica,
    sums: Sequence[bool],
    plan: Plan,
    notes: GradientNotes,
) -> Merged:
    """Outputs and masks of the replicas concatenated, added losses averaged or summed, on the merge device."""
    with tf.device(plan.merge_device):
        with_rows = [merge(slices) for slices in zip(*(result.with_rows for result in results), strict=True)]
        losses = merge_losses([result.losses for result in results], kept, sums)
        watched = replica.watch([*with_rows, *losses], notes)
    return Merged(replica.outputs(watched[: len(with_rows)]), watched[len(with_rows) :])
