"""spread: one batch, many devices. split → send → run → merge, and the state kept once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.batches.call_arguments import CallArguments, flatten_composites
from multigpu.batches.split_merge import RowRange, count_rows, merge, share_rows, split
from multigpu.cluster.reduction import Workers
from multigpu.devices.plan import Plan
from multigpu.replicas.outputs import OutputLayout, Result
from multigpu.replicas.replica import Replica
from multigpu.replicas.run import ReplicaRun
from multigpu.replicas.state import weighted_mean
from multigpu.replicas.template import TemplateParts
from multigpu.weights.buckets import Types, buckets_of, unpack
from multigpu.weights.gradient_structure import GradientStructure
from multigpu.weights.place_locate import read
from multigpu.weights.send_reduce import send, send_once


class Merged(NamedTuple):
    """What one device would have given, and how the weights travelled for it."""

    outputs: Any  # with their masks
    losses: list[tf.Tensor]  # that layers added
    types: dict[int, Types]  # by id of the weight


def data_parallel(
    parts: TemplateParts, batch: CallArguments, plan: Plan, eager: bool, workers: Workers | None = None
) -> Merged:
    """Runs the template on one batch, spread over the devices of the plan, and updates its state once.

    Args:
        parts: the template.
        batch: the arguments of the call.
        plan: where to work.
        eager: whether to run the template op by op instead of tracing it.
        workers: the machines that run their own batches at the same time.
    """
    notes = GradientStructure()
    forward = workers if workers and workers.joint else None
    with tf.device("CPU:0"):
        shares = share_rows(count_rows(batch.tensors), len(plan.devices))
        slices = list(zip(*(split(x, shares) for x in batch.tensors), strict=True))
    inputs = _other_inputs(slices, shares, parts.state, plan, workers.first_replica if workers else 0)

    alone = len(plan.devices) == 1 and not forward
    replica = Replica(parts, batch, alone, forward)
    function = replica if eager else replica.trace([*map(read, parts.weights), *inputs[0]])
    types = {} if eager else replica.types  # unknown before the template was run
    buckets = buckets_of(parts.weights, types)
    buffers = send(parts.weights, buckets, plan.devices, notes, workers)
    results = []
    for number, device in enumerate(plan.devices):
        trained = parts.tables.trained()
        run = ReplicaRun(
            function, lambda: replica.layout.num_differentiable, buckets, device, number, trained, notes, workers
        )
        flat = run(buffers[number], inputs[number])
        results.append(replica.layout.open(flat))

    kept = [share.kept for share in shares]
    with tf.device(plan.merge_device):
        with_rows, averaged = _merge(results, kept, replica.layout, notes)
        whole = replica.global_batch.compute(parts, batch, replica.layout.inner(with_rows), forward)
    replica.updates.assign([result.updates for result in results], kept, forward)
    whole.assign()
    return Merged(replica.layout.outputs(with_rows), _in_order(averaged, whole.losses), types)


def _other_inputs(
    slices: Sequence[Sequence[tf.Tensor]],
    shares: Sequence[RowRange],
    state: Sequence[keras.Variable],
    plan: Plan,
    first: int,
) -> list[list[tf.Tensor]]:
    """What each replica takes besides weights: values of the state, its slice, its rows, its number."""
    buckets = buckets_of(state)
    buffers = send_once(state, buckets)
    inputs = []
    for number, device in enumerate(plan.devices):
        with tf.device(device):
            values = unpack(buffers, buckets)
            inputs.append(
                [*values, *flatten_composites(slices[number]), shares[number].kept, tf.constant(first + number)]
            )
    return inputs


def _merge(
    results: Sequence[Result], kept: Sequence[tf.Tensor], layout: OutputLayout, notes: GradientStructure
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
