"""data_parallel: one batch, many devices. split → send → run → merge. State is updated once."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.batches.split_merge import Position, RowRange, rows_of_each, share_rows, split
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.pipeline.staged_run import StagedRun
from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTraceCache
from multigpu.engines.tensorflow.replicas.backward import run_replica
from multigpu.engines.tensorflow.replicas.kept_tensors import Kept
from multigpu.engines.tensorflow.replicas.noise import Draw
from multigpu.engines.tensorflow.replicas.outputs import Result
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.replica_run import ReplicaRun
from multigpu.engines.tensorflow.replicas.state import weighted_mean
from multigpu.engines.tensorflow.replicas.template import OfTrace, TemplateState
from multigpu.engines.tensorflow.replicas.trace import share_a_tape, trace
from multigpu.engines.tensorflow.replicas.traced import Traced
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.group_sending import GroupSending
from multigpu.engines.tensorflow.weights.packing import Packing
from multigpu.plan.plan import Plan


@dataclass(frozen=True)
class Given:
    """The outputs and losses that one device would have returned."""

    outputs: Any  # with their masks
    losses: list[tf.Tensor]  # that layers added


@dataclass(frozen=True)
class Merged(Given):
    """Outputs and losses, and what the runs have shown.

    Attributes:
        traced: what the last run has shown, with the types in which weights were sent.
        kept: the attributes of layers that the call has set.
        template: the state of the template.
        structure: the results of the replicas.
    """

    traced: Traced
    kept: list[Kept]
    template: TemplateState
    structure: GradientStructure


class Slices(NamedTuple):
    """A batch in slices, one per replica."""

    tensors: list[tuple[tf.Tensor, ...]]
    scalars: list[tf.Tensor]  # the same for each replica
    rows: list[RowRange]
    before: tf.Tensor  # (), rows of the global batch that other workers have before this one
    total: tf.Tensor  # (), rows of the global batch

    @property
    def kept(self) -> list[tf.Tensor]:
        """Return how many rows of each slice count."""
        return [rows.kept for rows in self.rows]

    def inputs(self, number: int, first_replica: int) -> list[tf.Tensor]:
        """Return the inputs of a replica besides weights and state: its slice, scalars, and the slice's position."""
        replica = tf.constant(first_replica + number)
        with tf.device("CPU:0"):
            first = self.before + self.rows[number].begin
        position = Position(self.kept[number], replica, first, self.total)
        return [*flatten_composites(self.tensors[number]), *self.scalars, *position]


def data_parallel(
    template: TemplateState,
    batch: CallArguments,
    plan: Plan,
    eager: bool,
    workers: Reduction,
    sent_ahead: Mapping[int, list[tf.Tensor]],
    of_trace: OfTrace,
    draws: Sequence[Draw],
    after: Sequence[tf.Tensor] = (),
) -> Merged:
    """Run the template on one batch, spread over the devices of the plan, and update its state once.

    Args:
        template: the state of the template.
        batch: the arguments of the call.
        plan: the plan with the devices.
        eager: whether to run the template op by op instead of tracing it.
        workers: the workers that run their own batches at the same time.
        sent_ahead: slices of inputs that are already on the devices, by the ids of the inputs.
        of_trace: what a trace has shown of a call like this, if it runs op by op.
        draws: the known random draws of a call like this, if no trace tells them.
        after: tensors for which replicas wait.
    """
    check_new_values(template, batch, plan, workers)
    with tf.control_dependencies(after):
        slices = split_batch(batch, plan, workers, sent_ahead)
    together, structure = workers.in_forward_pass, GradientStructure()
    alone = len(plan.replicas) == 1 and not together.several
    # without a gradient, closed shapes save nothing
    rows = None if batch.training is False else rows_of_each(batch.known_rows, len(plan.replicas))
    replica = Replica(template, batch, alone, together, plan, rows, draws=draws, of_trace=of_trace)
    if (plan.groups or template.statistics.layers) and not eager:  # op by op, parts run on devices without a cut
        traces = StagedTraceCache(replica, bool(batch.training))
        replica = traces.first.replica
        results, traced = run_in_stages(traces, slices, workers, structure)
    else:
        replica, first = (replica, None) if eager else trace(replica)
        results, traced = run_on_devices(replica, first, slices, workers, structure)
    return merge_results(replica, results, traced, slices, structure)


def check_new_values(template: TemplateState, batch: CallArguments, plan: Plan, workers: Reduction) -> None:
    """Raise an error for gradients that are new values if those of slices would be summed on their way.

    Raises:
        ValueError: a training step has such variables, and there are several workers, or several slices per device.
    """
    devices = [device for group in plan.replicas for device in group]
    if not batch.training or not (workers.several or len(set(devices)) < len(devices)):
        return
    overwritten = [variable.path for variable in template.weights if variable.overwrite_with_gradient]
    if overwritten:
        where = "several workers" if workers.several else f"the devices {devices}"
        raise refuse(
            "one worker, and one slice for each device, because the template has variables that are overwritten with "
            "their gradient (such as float8 scales), and multigpu keeps the largest value of all slices",
            f"{where} and the variable {overwritten[0]!r}",
            "List each device once in one process, or set the variable's `trainable=False`.",
        )


def split_batch(
    batch: CallArguments, plan: Plan, workers: Reduction, sent_ahead: Mapping[int, list[tf.Tensor]]
) -> Slices:
    """Split the batch into slices."""
    with tf.device("CPU:0"):
        here = tf.identity(batch.count_rows())
        rows = share_rows(here, len(plan.replicas))
        slices = [sent_ahead.get(id(x)) or split(x, rows) for x in batch.tensors]
        around = workers.in_forward_pass.rows_around(here)
        return Slices(list(zip(*slices, strict=True)), batch.scalars, rows, *around)


def run_on_devices(
    replica: Replica, first: Traced | None, slices: Slices, workers: Reduction, structure: GradientStructure
) -> tuple[list[Result], Traced]:
    """Run the replica on each device, with the weights that are sent there. Without a trace, it runs op by op."""
    template, packing, devices = replica.template, Packing(), [group[0] for group in replica.plan.replicas]
    sending = GroupSending(template.weights, template.state, replica.plan, [0] * len(replica.variables))
    types = first.types if first else replica.types_op_by_op
    copies, buffers = sending.send_weights(types, structure, workers)
    buckets = [copy.bucket for copy in copies if copy.device == devices[0]]
    inputs = send_inputs(sending, slices, workers, packing)
    one_each = first is not None and len(devices) > 1 and share_a_tape(first)
    results: list[Result] = []
    for device, others in zip(devices, inputs, strict=True):
        traced = trace(replica)[1] if results and one_each else first
        arrived = [buffer for buffer, copy in zip(buffers, copies, strict=True) if copy.device == device]
        run = ReplicaRun(device, structure, workers, packing, len(devices), replica, traced, buckets)
        run, flat = run_replica(run, [*arrived, *others])
        results.append(run.shown.layout.open(flat))
        replica = replace(replica, carried=run.shown.carried, draws=run.shown.draws, like=run.shown.calls)
    return results, run.shown


def send_inputs(sending: GroupSending, slices: Slices, workers: Reduction, packing: Packing) -> list[list[tf.Tensor]]:
    """Send each replica its inputs besides weights: values of the state, its slice, and the slice's position."""
    inputs = []
    for number, (group, state) in enumerate(zip(sending.plan.replicas, sending.send_state(packing), strict=True)):
        with tf.device(group[0]):
            inputs.append([*state, *slices.inputs(number, workers.first_replica)])
    return inputs


def run_in_stages(
    traces: StagedTraceCache, slices: Slices, workers: Reduction, structure: GradientStructure
) -> tuple[list[Result], Traced]:
    """Run the replica on the devices of each group, part by part."""
    replica, traced = traces.first.replica, traces.first.traced
    template, groups, packing = replica.template, replica.plan.replicas, Packing()
    if len(groups) > 1 and share_a_tape(traced):
        template.statistics.check_traced_once()
    sending = GroupSending(template.weights, template.state, replica.plan, traces.first.homes)
    copies, buffers = sending.send_weights(traced.types, structure, workers)
    inputs = send_inputs(sending, slices, workers, packing)
    at, num_weights = replica.plan.merge_device, len(template.weights)
    run = StagedRun(at, structure, workers, packing, 1, traces, copies, num_weights, groups)
    _, flat = run_replica(run, [*buffers, *itertools.chain(*inputs)])
    each = len(flat) // len(groups)
    return [traced.layout.open(flat[first : first + each]) for first in range(0, len(flat), each)], traced


def merge_results(
    replica: Replica, results: Sequence[Result], traced: Traced, slices: Slices, structure: GradientStructure
) -> Merged:
    """Return concatenated outputs and added losses of the global batch, and update the template's state once."""
    layout, of_batch = traced.layout, traced.global_batch
    with tf.device(replica.plan.merge_device):
        with_rows = layout.merge(results)
        losses = [weighted_mean(values, slices.kept) for values in zip(*(r.losses for r in results), strict=True)]
        watched = layout.watch([*with_rows, *losses], structure)
        with_rows, losses = watched[: len(with_rows)], watched[len(with_rows) :]
        inner, number = layout.inner(with_rows), len(of_batch.tensors)
        traced.give_kept(inner[number:])
        noise = results[0].noise
        computed, own = of_batch.compute(replica.template, replica.batch, inner[:number], noise, replica.workers)
    updates = traced.updates.combined([result.updates for result in results], slices.kept, replica.workers)
    for variable, value in itertools.chain(updates, own):
        variable.assign(value)  # on its owner
    averaged = [number for number in range(len(traced.calls.adding)) if number not in computed]
    added = {**computed, **dict(zip(averaged, losses, strict=True))}
    losses = [added[number] for number in traced.calls.order_of_losses()]
    kept = [each.now() for each in traced.calls.kept]
    return Merged(layout.outputs(with_rows), losses, traced, kept, replica.template, structure)
