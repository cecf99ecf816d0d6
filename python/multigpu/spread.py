"""spread: one batch, many devices. split → send → run → merge, and the state kept once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.batch import Batch, flatten_composites
from multigpu.cluster.workers import Workers
from multigpu.gradient_notes import GradientNotes
from multigpu.layout import Layout, Result
from multigpu.parcels import Types, parcels_of, unpack
from multigpu.parts import Parts
from multigpu.place_locate import read
from multigpu.plan import Plan
from multigpu.replica import Replica
from multigpu.run import Run
from multigpu.send_reduce import send, send_once
from multigpu.split_merge import Rows, count_rows, merge, share_rows, split
from multigpu.state import weighted_mean
from multigpu.trial_trace import check_by_trace


class Merged(NamedTuple):
    """What one device would have given, and how the weights travelled for it."""

    outputs: Any  # with their masks
    losses: list[tf.Tensor]  # that layers added
    types: dict[int, Types]  # by id of the weight


def spread(
    parts: Parts, batch: Batch, plan: Plan, eager: bool, check: bool = False, workers: Workers | None = None
) -> Merged:
    """Runs the template on one batch, spread over the devices of the plan, and updates its state once.

    Args:
        parts: the template.
        batch: the arguments of the call.
        plan: where to work.
        eager: whether to run the template op by op instead of tracing it.
        check: whether to trace it nevertheless, to see what only a trace shows.
        workers: the machines that run their own batches at the same time.
    """
    notes = GradientNotes()
    forward = workers if workers and workers.joint else None
    with tf.device("CPU:0"):
        shares = share_rows(count_rows(batch.tensors), len(plan.devices))
        slices = list(zip(*(split(x, shares) for x in batch.tensors), strict=True))
    inputs = _other_inputs(slices, shares, parts.state, plan, workers.first_replica if workers else 0)

    alone = len(plan.devices) == 1 and not forward
    replica = Replica(parts, batch, alone, forward)
    given = [*map(read, parts.weights), *inputs[0]]
    if check and not alone:
        check_by_trace(parts, batch, given)
    function = replica if eager else replica.trace(given)
    types = {} if eager else replica.types  # unknown before the template was run
    parcels = parcels_of(parts.weights, types)
    buffers = send(parts.weights, parcels, plan.devices, notes, workers)
    results = []
    for number, device in enumerate(plan.devices):
        trained = parts.tables.trained()
        run = Run(function, lambda: replica.layout.num_differentiable, parcels, device, number, trained, notes, workers)
        flat = run(buffers[number], inputs[number])
        results.append(replica.layout.open(flat))

    kept = [share.kept for share in shares]
    with tf.device(plan.merge_device):
        with_rows, averaged = _merge(results, kept, replica.layout, notes)
        whole = replica.whole_batch.compute(parts, batch, replica.layout.inner(with_rows), forward)
    replica.updates.assign([result.updates for result in results], kept, forward)
    whole.assign()
    return Merged(replica.layout.outputs(with_rows), _in_order(averaged, whole.losses), types)


def _other_inputs(
    slices: Sequence[Sequence[tf.Tensor]],
    shares: Sequence[Rows],
    state: Sequence[keras.Variable],
    plan: Plan,
    first: int,
) -> list[list[tf.Tensor]]:
    """What each replica takes besides weights: values of the state, its slice, its rows, its number."""
    parcels = parcels_of(state)
    buffers = send_once(state, parcels)
    inputs = []
    for number, device in enumerate(plan.devices):
        with tf.device(device):
            values = unpack(buffers, parcels)
            inputs.append(
                [*values, *flatten_composites(slices[number]), shares[number].kept, tf.constant(first + number)]
            )
    return inputs


def _merge(
    results: Sequence[Result], kept: Sequence[tf.Tensor], layout: Layout, notes: GradientNotes
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """What has rows concatenated, and added losses averaged by rows."""
    with_rows = [merge(slices) for slices in zip(*(result.with_rows for result in results), strict=True)]
    averaged = [weighted_mean(values, kept) for values in zip(*(result.losses for result in results), strict=True)]
    watched = layout.watch([*with_rows, *averaged], notes)
    return watched[: len(with_rows)], watched[len(with_rows) :]


def _in_order(averaged: Sequence[tf.Tensor], of_whole_batch: Mapping[int, tf.Tensor]) -> list[tf.Tensor]:
    """All added losses in the order in which they were added, of some of which the numbers are known."""
    others = iter(averaged)
    return [
        of_whole_batch[number] if number in of_whole_batch else next(others)
        for number in range(len(averaged) + len(of_whole_batch))
    ]
