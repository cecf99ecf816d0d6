"""All replicas of a template with parts: their slices go through the stages one behind the other, forward and backward."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from multigpu.devices.groups import Group
from multigpu.private_api.gradients import dense
from multigpu.replicas.launch_order import LaunchOrder
from multigpu.replicas.replica import Replica
from multigpu.replicas.replica_run import counted_rows, used_of
from multigpu.replicas.staged_trace import StagedTrace
from multigpu.replicas.staged_traces import StagedTraces
from multigpu.replicas.stages import Stage, names, sums_before
from multigpu.replicas.tapes import Differentiable, Gradient, Taped, floating, untaped
from multigpu.weights.buckets import open_bucket, pack
from multigpu.weights.gradient_structure import GradientStructure, inputs_reached
from multigpu.weights.group_sending import Copy
from multigpu.weights.send_reduce import joined_rows


@dataclass
class StagedRun:
    """The slices of a batch, each on the devices of its group.

    What arrives are the copies, and then, for each slice in turn, what a replica takes besides weights.

    Attributes:
        replica: what is run.
        traces: of it.
        copies: the buckets with the weights, on the devices of their parts.
        num_weights: how many weights a replica takes, before all else.
        groups: the devices of each slice.
        device: where results are merged, and gradients come back from.
        structure: what the owners have to know of the gradient beside its buffers.
    """

    replica: Replica
    traces: StagedTraces
    copies: Sequence[Copy]
    num_weights: int
    groups: Sequence[Group]
    device: str
    structure: GradientStructure
    tables: Sequence[tf.Variable] = ()

    def forward(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Results of all slices, one slice after the other; on no tape that is around."""
        hidden = []
        for x in arrived:
            with tf.device(x.device or None):  # a copy of a bucket stays where it is
                hidden += untaped([x])
        return self._staged(hidden, self.traces.first)

    def tape(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """The same under a tape, each slice on the first device of its group."""
        weights, inputs = self._unpack(arrived)
        sources = [*weights, *(x for slice_ in inputs for x in slice_)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(floating(sources))
            results: list[tf.Tensor] = []
            for number, group in enumerate(self.groups):
                with tf.device(group[0]):
                    results += self.traces.whole(*self._taken(weights, number), *inputs[number])
        return Taped(tape, sources, results)

    def used(self, results: Sequence[tf.Tensor]) -> list[int]:
        """Numbers of the results that a gradient comes back from."""
        each = len(results) // len(self.groups)
        of_slice = used_of(results, self.replica.layout.num_differentiable, self.structure)
        return [slice_ * each + number for slice_ in range(len(self.groups)) for number in of_slice]

    def departures(self, num_arrived: int) -> list[tuple[list[int], str]]:
        """Each copy of a bucket by itself, from its device; then inputs."""
        copies = [([number], copy.device) for number, copy in enumerate(self.copies)]
        return [*copies, (list(range(len(copies), num_arrived)), self.device)]

    def gradients(self, made: Differentiable, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> list[Gradient]:
        """Gradients of all that arrived; None where nothing depends on it."""
        of_slice = used[: len(used) // len(self.groups)]
        if isinstance(made, StagedForward) and made.trace.used != of_slice:
            made = self._staged(made.arrived, self.traces.using(of_slice))
        gradients, _ = made.gradients(used, upstream, ())
        trace = self.traces.using(of_slice)
        reached = inputs_reached([trace.results[i] for i in of_slice], trace.function.inputs)
        packed: list[Gradient] = []
        first = 0
        for bucket, device in self.copies:
            numbers = range(first, first + len(bucket.members))
            connected = [w for n, w in zip(numbers, bucket.members, strict=True) if gradients[n] is not None and w in reached]
            self.structure.connected.update(connected)
            with tf.device(device):
                sent = {w: _or_zeros(gradients[n], made.sources[n]) for n, w in zip(numbers, bucket.members, strict=True)}
                packed.append(pack(sent, bucket))
            first = numbers.stop
        return [*packed, *gradients[first:]]

    def of_all_workers(self, of_tables: Sequence[Gradient]) -> dict[int, tf.IndexedSlices]:
        """No table stays with its owner."""
        return {}

    def _unpack(self, arrived: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[list[tf.Tensor]]]:
        """The weights of all copies; and what each slice takes besides."""
        weights = []
        for buffer, (bucket, device) in zip(arrived, self.copies, strict=False):
            with tf.device(device):
                weights += open_bucket(buffer, bucket)
        rest = list(arrived[len(self.copies) :])
        each = len(rest) // len(self.groups)
        return weights, [rest[number * each : (number + 1) * each] for number in range(len(self.groups))]

    def _taken(self, of_copies: Sequence[tf.Tensor], number: int) -> list[tf.Tensor]:
        """The weights that a slice takes, in their order."""
        positions = self._positions(number)
        return [of_copies[positions[weight]] for weight in range(self.num_weights)]

    def _positions(self, number: int) -> dict[int, int]:
        """Where, among the weights of all copies, those of a slice are, by their numbers."""
        members = [(weight, copy.device) for copy in self.copies for weight in copy.bucket.members]
        group = self.groups[number]
        return {w: n for n, (w, device) in enumerate(members) if device == group[self.traces.homes[w]]}

    def _staged(self, arrived: Sequence[tf.Tensor], trace: StagedTrace) -> "StagedForward":
        weights, inputs = self._unpack(arrived)
        taken = [[*self._taken(weights, number), *inputs[number]] for number in range(len(self.groups))]
        staged = StagedForward(self, trace, arrived, [*weights, *(x for slice_ in inputs for x in slice_)], taken)
        staged.run([stage for stage in trace.stages if not stage.backward])
        return staged

    def to_sources(
        self, gradients: Sequence[Sequence[Gradient]], num_weights: int, kept: Sequence[tf.Tensor]
    ) -> list[Gradient]:
        """Gradients of the weights of all copies, summed over slices, and of what each slice takes besides."""
        summed: list[Gradient] = [None] * num_weights
        devices = [copy.device for copy in self.copies for _ in copy.bucket.members]
        for number, of_slice in enumerate(gradients):
            for weight, position in self._positions(number).items():
                with tf.device(devices[position]):
                    summed[position] = _plus(summed[position], counted_rows(of_slice[weight], kept[number]))
        return [*summed, *(x for of_slice in gradients for x in of_slice[self.num_weights :])]


class StagedForward:
    """Slices that went through the forward stages, and can go back."""

    def __init__(
        self,
        run: StagedRun,
        trace: StagedTrace,
        arrived: Sequence[tf.Tensor],
        sources: list[tf.Tensor],
        taken: Sequence[Sequence[tf.Tensor]],
    ) -> None:
        """Takes what goes in.

        Args:
            run: of which it is the forward pass.
            trace: what is run.
            arrived: what arrived.
            sources: the same, unpacked.
            taken: of these, what each slice takes.
        """
        self.trace = trace
        self.arrived = arrived
        self.sources = sources
        self._run = run
        self._num_weights = len(sources) - sum(len(of_slice) - run.num_weights for of_slice in taken)
        inputs = names(trace.function.inputs)
        self._values = [dict(zip(inputs, of_slice, strict=False)) for of_slice in taken]
        self._order = LaunchOrder(run.groups)
        self._kept = [of_slice[-2] for of_slice in taken]
        self._shared = set(inputs[: len(run.traces.homes)])

    @property
    def results(self) -> list[tf.Tensor]:
        """Of all slices, one slice after the other."""
        return [values[x.name] for values in self._values for x in self.trace.results]

    def gradients(
        self, used: Sequence[int], upstream: Sequence[tf.Tensor], tables: Sequence[tf.Variable]
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Gradients of the sources, from those of the results in use; there are no tables."""
        each = len(upstream) // len(self._values)
        for number, values in enumerate(self._values):
            given = upstream[number * each : (number + 1) * each]
            values.update(zip(names(self.trace.upstream), given, strict=True))
        self.run([stage for stage in self.trace.stages if stage.backward])
        found = [[_valued(gradient, values) for gradient in self.trace.gradients] for values in self._values]
        return self._run.to_sources(found, self._num_weights, self._kept), []

    def run(self, stages: Sequence[Stage]) -> None:
        """Takes all slices through some stages. Where slices are summed, all have to be there before any goes on."""
        begins = [n for n, stage in enumerate(stages) if n == 0 or next(sums_before(stage, self.trace.sums), None)]
        for begin, end in itertools.pairwise([*begins, len(stages)]):
            self._sum(stages[begin])
            for position, number in self._order.slices(stages[begin:end]):
                self._launch(stages[begin:end][position : position + 2], number)

    def _launch(self, stages: Sequence[Stage], number: int) -> None:
        """Takes a slice through the first of two stages that follow each other."""
        stage, following = stages[0], stages[1] if len(stages) > 1 else None
        values = self._values[number]
        taken = [values[x.name] for x in stage.takes]
        waits = [x.name not in self._shared for x in stage.takes]
        made = self._order.run(stage, following, number, taken, waits)
        values.update(zip(names(stage.gives), made, strict=True))

    def _sum(self, stage: Stage) -> None:
        """Makes the sums over slices that a stage takes."""
        for total, x in sums_before(stage, self.trace.sums):
            if total.name not in self._values[0]:
                with tf.device(self._run.groups[0][stage.part]):
                    summed = tf.add_n([values[x.name] for values in self._values])
                for values in self._values:
                    values[total.name] = summed


def _valued(gradient: Gradient, values: dict[str, tf.Tensor]) -> Gradient:
    """A gradient of the trace, as it is for a slice."""
    if gradient is None:
        return None
    return tf.nest.map_structure(lambda x: values[x.name], gradient, expand_composites=True)


def _or_zeros(gradient: Gradient, weight: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    return tf.zeros_like(weight) if gradient is None else gradient


def _plus(one: Gradient, another: Gradient) -> Gradient:
    if one is None or another is None:
        return another if one is None else one
    if isinstance(one, tf.IndexedSlices) and isinstance(another, tf.IndexedSlices):
        return joined_rows([one, another])
    return dense(one) + dense(another)
