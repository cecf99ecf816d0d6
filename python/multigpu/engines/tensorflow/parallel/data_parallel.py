"""data_parallel: one batch, many devices. split → send → run → merge. State is updated once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.batches.split_merge import RowRange, count_rows, merge, share_rows, split
from multigpu.engines.tensorflow.cluster.one_worker import OneWorker
from multigpu.engines.tensorflow.pipeline.staged_run import StagedRun
from multigpu.engines.tensorflow.pipeline.staged_traces import StagedTraces
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.replicas.kept_tensors import Kept
from multigpu.engines.tensorflow.replicas.noise import Draw
from multigpu.engines.tensorflow.replicas.outputs import Result
from multigpu.engines.tensorflow.replicas.position import Position
from multigpu.engines.tensorflow.replicas.reach import Reach
from multigpu.engines.tensorflow.replicas.replica import Function, Replica
from multigpu.engines.tensorflow.replicas.replica_run import ReplicaRun, reach_of
from multigpu.engines.tensorflow.replicas.run import run_replica
from multigpu.engines.tensorflow.replicas.state import weighted_mean
from multigpu.engines.tensorflow.replicas.tapes import share_a_tape
from multigpu.engines.tensorflow.replicas.template import TemplateParts
from multigpu.engines.tensorflow.weights.buckets import Types, as_stored, buckets_of, is_overwritten, unpack
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.group_sending import GroupSending
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.engines.tensorflow.weights.send_reduce import arrive, send, send_once
from multigpu.plan.plan import Plan


class Given(NamedTuple):
    """The outputs and losses that one device would have returned."""

    outputs: Any  # with their masks
    losses: list[tf.Tensor]  # that layers added


class Merged(NamedTuple):
    """Outputs and losses, and how the weights were sent for them."""

    given: Given
    types: dict[int, Types]  # by the id of the weight
    kept: list[Kept]  # attributes of layers that the call has set
    weights_behind: Callable[[tf.Tensor], list[tf.Variable]]  # a tensor of the same trace
    weights_added: Callable[[], list[tf.Variable]]  # to all else: see `Reach.added`


def data_parallel(
    parts: TemplateParts,
    batch: CallArguments,
    plan: Plan,
    eager: bool,
    workers: OneWorker,
    sent_ahead: Mapping[int, list[tf.Tensor]],
    ways: dict[int, Rows],
    draws: list[Draw],
    after: Sequence[tf.Tensor] = (),
) -> Merged:
    """Run the template on one batch, spread over the devices of the plan, and update its state once.

    Args:
        parts: the parts of the template.
        batch: the arguments of the call.
        plan: the plan with the devices.
        eager: whether to run the template op by op instead of tracing it.
        workers: the workers that run their own batches at the same time.
        sent_ahead: slices of inputs that are already on the devices, by the ids of the inputs.
        ways: how rows of weights are looked up, by ids, if no trace tells it.
        draws: the known random draws of a call like this, if no trace tells them. New ones are added.
        after: tensors for which replicas wait.
    """
    steps = _Steps(parts, batch, plan, workers, sent_ahead, ways, draws, after)
    steps.check_new_values()
    slices = steps.split()
    replica = steps.make_replica()
    staged = (plan.groups or parts.statistics.layers) and not eager  # op by op, parts run on devices without a cut
    results = steps.run_in_stages(replica, slices) if staged else steps.run(replica, slices, eager)
    return steps.merge(replica, results, slices)


class Slices(NamedTuple):
    """A batch in slices, one per replica."""

    tensors: list[tuple[tf.Tensor, ...]]
    rows: list[RowRange]
    before: tf.Tensor  # (), rows of the global batch that other workers have before this one
    total: tf.Tensor  # (), rows of the global batch

    @property
    def kept(self) -> list[tf.Tensor]:
        """Return how many rows of each slice count."""
        return [rows.kept for rows in self.rows]


@dataclass
class _Steps:
    """The steps of one call, and the values that all of them need."""

    parts: TemplateParts
    batch: CallArguments
    plan: Plan
    workers: OneWorker
    sent_ahead: Mapping[int, list[tf.Tensor]]
    ways: dict[int, Rows]
    draws: list[Draw]
    after: Sequence[tf.Tensor]
    structure: GradientStructure = field(default_factory=GradientStructure)
    types: dict[int, Types] = field(default_factory=dict)  # unknown before the template has run
    reach: Reach | None = None  # unknown without a trace

    def check_new_values(self) -> None:
        """Raise an error for gradients that are new values if those of slices would be summed on their way.

        Raises:
            ValueError: a training step has such variables, and there are several workers, or several slices per device.
        """
        devices = [device for group in self.plan.replicas for device in group]
        if not self.batch.training or not (self.workers.several or len(set(devices)) < len(devices)):
            return
        overwritten = [variable.path for variable in self.parts.weights if is_overwritten(variable)]
        if overwritten:
            where = "several workers" if self.workers.several else f"the devices {devices}"
            raise refuse(
                "one worker, and one slice for each device, for a template with variables that are overwritten with "
                "their gradient, such as scales of float8: of these the largest of all slices is kept",
                f"{where} and the variable {overwritten[0]!r}",
                "List each device once in one process, or set the variable's `trainable=False`.",
            )

    def split(self) -> Slices:
        """Split the batch into slices."""
        with tf.device("CPU:0"), tf.control_dependencies(self.after):
            here = tf.identity(count_rows(self.batch.tensors))
            rows = share_rows(here, len(self.plan.replicas))
            slices = [self.sent_ahead.get(id(x)) or split(x, rows) for x in self.batch.tensors]
            return Slices(list(zip(*slices, strict=True)), rows, *self.workers.in_forward_pass.rows_around(here))

    def make_replica(self) -> Replica:
        """Return the replica that runs on each slice."""
        together = self.workers.in_forward_pass
        alone = len(self.plan.replicas) == 1 and not together.several
        return Replica(self.parts, self.batch, alone, together, self.plan)

    def run(self, replica: Replica, slices: Slices, eager: bool) -> list[Result]:
        """Run the replica on each device, with the weights that are sent there."""
        functions = self._functions(replica, eager)
        self.reach = reach_of(replica, functions[0])
        buckets = buckets_of(self.parts.weights, self.types)
        devices = [group[0] for group in self.plan.replicas]
        distinct = list(dict.fromkeys(devices))
        sent = send(self.parts.weights, buckets, distinct, self.structure, self.workers)
        weights = dict(zip(distinct, sent, strict=True))
        inputs = self._send_inputs(replica, slices)
        results = []
        for number, device in enumerate(devices):
            run = ReplicaRun(replica, functions[number], buckets, device, len(devices), self.structure, self.workers)
            with tf.device(device):
                arrived = [arrive(buffer, bucket) for buffer, bucket in zip(weights[device], buckets, strict=True)]
            flat = run_replica(run, [*arrived, *inputs[number]])  # run eagerly, its layout is known only now
            results.append(replica.layout.open(flat))
        return results

    def _functions(self, replica: Replica, eager: bool) -> list[Function]:
        """Return the function for each device. The replica is traced once for all of them, unless it runs op by op."""
        num_devices = len(self.plan.replicas)
        if eager:  # the types of its gradients are known only with the gradients
            rows = {id(v): self.ways.get(id(v), Rows.APART) for v in self.parts.weights}
            self.types = {id(v): as_stored(v)._replace(rows=rows[id(v)]) for v in self.parts.weights}
            replica.rows_of_tables, replica.draws = self.ways, self.draws
            return [replica] * num_devices
        function = replica.trace()
        self.types = replica.types
        if num_devices > 1 and share_a_tape(function):
            return [function, *(replica.trace() for _ in range(num_devices - 1))]
        return [function] * num_devices

    def _send_inputs(self, replica: Replica, slices: Slices) -> list[list[tf.Tensor]]:
        """Send each replica its inputs besides weights: values of the state, its slice, and the slice's position."""
        buckets = buckets_of(self.parts.state)
        buffers = send_once(self.parts.state, buckets)
        inputs = []
        for number, (device, *_) in enumerate(self.plan.replicas):
            with tf.device(device):
                state = unpack(buffers, buckets, "CPU:0", replica.packing.open)
                inputs.append([*state, *self._of_slice(slices, number)])
        return inputs

    def _of_slice(self, slices: Slices, number: int) -> list[tf.Tensor]:
        """Return the inputs of a replica besides weights and state."""
        replica = tf.constant(self.workers.first_replica + number)
        with tf.device("CPU:0"):
            first = slices.before + slices.rows[number].begin
        position = Position(slices.kept[number], replica, first, slices.total)
        return [*flatten_composites(slices.tensors[number]), *position]

    def run_in_stages(self, replica: Replica, slices: Slices) -> list[Result]:
        """Run the replica on the devices of each group, part by part."""
        traces = StagedTraces(replica, bool(self.batch.training))
        if len(self.plan.replicas) > 1 and share_a_tape(traces.first.function):
            self.parts.statistics.check_traced_once()
        self.types, self.reach = replica.types, traces.first.reach
        sending = GroupSending(self.parts.weights, self.parts.state, self.plan, traces.homes)
        copies, buffers = sending.weights(self.types, self.structure, self.workers)
        state = sending.state(replica.packing)
        inputs: list[tf.Tensor] = []
        for number, group in enumerate(self.plan.replicas):
            with tf.device(group[0]):
                inputs += [*state[number], *self._of_slice(slices, number)]
        run = StagedRun(
            replica,
            traces,
            copies,
            num_weights=len(self.parts.weights),
            groups=self.plan.replicas,
            device=self.plan.merge_device,
            structure=self.structure,
            workers=self.workers,
        )
        flat = run_replica(run, [*buffers, *inputs])
        each = len(flat) // len(self.plan.replicas)
        return [replica.layout.open(flat[first : first + each]) for first in range(0, len(flat), each)]

    def merge(self, replica: Replica, results: Sequence[Result], slices: Slices) -> Merged:
        """Return concatenated outputs and added losses of the global batch, and update the template's state once."""
        layout, together = replica.layout, self.workers.in_forward_pass
        with tf.device(self.plan.merge_device):
            with_rows = [merge(pieces) for pieces in zip(*(result.with_rows for result in results), strict=True)]
            losses = [weighted_mean(values, slices.kept) for values in zip(*(r.losses for r in results), strict=True)]
            watched = layout.watch([*with_rows, *losses], self.structure)
            with_rows, losses = watched[: len(with_rows)], watched[len(with_rows) :]
            inner, number = layout.inner(with_rows), len(replica.global_batch.tensors)
            replica.give_kept(inner[number:])
            noise = results[0].noise
            of_batch = replica.global_batch.compute(self.parts, self.batch, inner[:number], noise, together)
        replica.updates.assign([result.updates for result in results], slices.kept, together)
        of_batch.assign()
        given = Given(layout.outputs(with_rows), _in_order(losses, of_batch.losses))
        kept = [each.now() for each in replica.kept]
        return Merged(given, self.types, kept, self._weights_behind, lambda: self._weights_added(replica))

    def _weights_behind(self, tensor: tf.Tensor) -> list[tf.Variable]:
        """Return the weights that lead to a tensor of this trace, through replicas or read for the global batch."""
        assert self.reach is not None  # it was traced
        captured = [(id(outside), inside) for outside, inside in tensor.graph.captures if outside.dtype == tf.resource]
        used, read = self.structure.behind(tensor, [inside for _, inside in captured])
        through = [backing_variable(self.parts.weights[number]) for number in self.reach.weights_of(used)]
        handles = {captured[number][0] for number in read} | {id(weight.handle) for weight in through}
        handles |= self.reach.tables_of(used)
        known = [*map(backing_variable, self.parts.template.trainable_variables), *self.reach.tables]
        return list({id(weight): weight for weight in known if id(weight.handle) in handles}.values())

    def _weights_added(self, replica: Replica) -> list[tf.Variable]:
        """Return the weights that are only added to results, unless the global batch reads weights as well."""
        assert self.reach is not None  # it was traced
        numbers = [] if replica.global_batch.has_calls else self.reach.added()
        return [backing_variable(self.parts.weights[number]) for number in numbers]


def _in_order(averaged: Sequence[tf.Tensor], of_global_batch: Mapping[int, tf.Tensor]) -> list[tf.Tensor]:
    """Return all added losses in the order in which they were added. The numbers of some are known."""
    others = iter(averaged)
    return [
        of_global_batch[number] if number in of_global_batch else next(others)
        for number in range(len(averaged) + len(of_global_batch))
    ]
