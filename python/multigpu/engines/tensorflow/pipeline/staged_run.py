"""All replicas of a template with parts, as one run: from the buffers on the devices of groups to gradients."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.staged_forward import StagedForward
from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTrace, StagedTraceCache
from multigpu.engines.tensorflow.private_api.gradients import dense
from multigpu.engines.tensorflow.replicas.replica_run import counted_rows, or_zeros
from multigpu.engines.tensorflow.replicas.run import Run
from multigpu.engines.tensorflow.replicas.tapes import Differentiable, Gradient, Taped, floating, untaped
from multigpu.engines.tensorflow.replicas.traced import Traced
from multigpu.engines.tensorflow.weights.group_sending import Copy
from multigpu.engines.tensorflow.weights.rows import Rows, together
from multigpu.plan.groups import Group


@dataclass(frozen=True)
class StagedRun(Run):
    """The slices of a batch, each on the devices of its group.

    The inputs are the copies, and then, for each slice in turn, a replica's inputs besides weights. Slices on the same
    devices share weights.

    Attributes:
        traces: the traces of the replica.
        copies: the buckets with the weights, on the devices of their parts.
        num_weights: the number of weights, which are a replica's first inputs.
        groups: the devices of each slice. Their results are merged on `device`, from which gradients come back.
    """

    traces: StagedTraceCache
    copies: Sequence[Copy]
    num_weights: int
    groups: Sequence[Group]

    @property
    def num_slices(self) -> int:
        """The number of slices, one for each group."""
        return len(self.groups)

    @property
    def shown(self) -> Traced:
        """The results of the first trace."""
        return self.traces.first.traced

    def forward(self, arrived: Sequence[tf.Tensor]) -> tuple["StagedRun", Differentiable]:
        """Return the results of all slices, one slice after the other, on no tape around."""
        for table in self.shown.tables:
            table.read_value()  # so that tapes know of the read: stages take only the handle
        hidden = []
        for x in arrived:
            with tf.device(x.device or None):  # a copy of a bucket stays where it is
                hidden += untaped([x])
        return self, self._staged(hidden, self.traces.first)

    def tape(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Return the same under a tape: of each slice, or from stage to stage if slices are summed."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*floating(arrived), *self.shown.tables])
            if self.shown.parts.sums:
                made = self._staged(arrived, self.traces.on_tape)
                return Taped(tape, made.sources, made.results)
            weights, inputs = self._unpack(arrived)
            results: list[tf.Tensor] = []
            for number, group in enumerate(self.groups):
                with tf.device(group[0]):
                    results += self.traces.whole(*self._taken(weights, number), *inputs[number])
        return Taped(tape, [*weights, *(x for slice_ in inputs for x in slice_)], results)

    def leaving_together(self, num_arrived: int) -> list[tuple[list[int], str]]:
        """Return each copy of a bucket separately, with its device, and then the inputs."""
        copies = [([number], copy.device) for number, copy in enumerate(self.copies)]
        return [*copies, (list(range(len(copies), num_arrived + len(self.shown.tables))), self.device)]

    def gradients(
        self, made: Differentiable, used: Sequence[int], upstream: Sequence[tf.Tensor], noted: bool = True
    ) -> list[Gradient]:
        """Return the gradients of all inputs. None for inputs on which nothing depends."""
        of_slice = list(used[: len(used) // self.num_slices])
        trace = self.traces.using(of_slice)
        if isinstance(made, StagedForward) and made.trace is not trace:  # its loops keep nothing for these gradients
            made = self._staged(made.arrived, trace)
        gradients, of_tables = made.gradients(used, upstream, self.shown.tables)
        reached = trace.reach.weights_of(of_slice)
        packed: list[Gradient] = []
        first = 0
        for bucket, device in self.copies:
            sent = dict(zip(bucket.members, range(first, first + len(bucket.members)), strict=True))
            if noted:
                self.structure.connect(w for w, n in sent.items() if gradients[n] is not None and w in reached)
            with tf.device(device):
                with_zeros = {w: or_zeros(gradients[n], made.sources[n]) for w, n in sent.items()}
                packed.append(self.packing.pack(with_zeros, bucket))
            first += len(bucket.members)
        handles = trace.reach.tables_of(of_slice)
        read = [id(table.handle) in handles for table in self.shown.tables]
        return [*packed, *gradients[first:], *(g if leads else None for g, leads in zip(of_tables, read, strict=True))]

    def note_second_order(self, used: Sequence[int], parts: Sequence[int], of_sources: Sequence[Gradient]) -> None:
        """Record the weights that lead to the results: the same as for first order."""
        of_slice = list(used[: len(used) // self.num_slices])
        self.structure.connect(self.traces.using(of_slice).reach.weights_of(of_slice))

    def _sum_up(
        self,
        gradients: Sequence[Sequence[Gradient]],
        of_tables: Sequence[Sequence[Gradient]],
        kept: Sequence[tf.Tensor],
        ends: Mapping[tuple[int, int], Sequence[tf.Tensor]],
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Return gradients summed over slices: of the weights of all copies, and of tables.

        Those of each slice's other inputs follow the weights'.

        Args:
            gradients: the gradients of all inputs of a replica, for each slice.
            of_tables: the gradients of the tables, for each slice.
            kept: the number of rows of each slice that count.
            ends: the last results of each slice on each part. Additions wait for them. Otherwise TensorFlow would merge
                all additions into one at the end, and keep the gradients of all slices until then.
        """
        homes = self.traces.first.homes
        devices = [copy.device for copy in self.copies for _ in copy.bucket.members]
        ways = [copy.bucket.types.rows for copy in self.copies for _ in copy.bucket.members]
        summed: list[Gradient] = [None] * len(devices)
        for number, of_slice in enumerate(gradients):
            for weight, position in self._positions(number).items():
                with tf.device(devices[position]), tf.control_dependencies(ends[number, homes[weight]]):
                    gradient = counted_rows(of_slice[weight], kept[number], ways[position])
                    summed[position] = _plus(summed[position], gradient, ways[position] or Rows.APART)
        others = [x for of_slice in gradients for x in of_slice[self.num_weights :]]
        return [*summed, *others], self._summed_tables(of_tables, kept)

    def _summed_tables(self, gradients: Sequence[Sequence[Gradient]], kept: Sequence[tf.Tensor]) -> list[Gradient]:
        """Return gradients of the tables, summed over the slices' counted rows."""
        summed = []
        for table, of_slices in zip(self.shown.tables, zip(*gradients, strict=True), strict=False):
            rows = self.shown.rows_of(table)
            with tf.device(table.device):
                counted = [counted_rows(gradient, own, rows) for gradient, own in zip(of_slices, kept, strict=True)]
                summed.append(functools.reduce(functools.partial(_plus, rows=rows), counted))
        return summed

    def _staged(self, arrived: Sequence[tf.Tensor], trace: StagedTrace) -> StagedForward:
        weights, inputs = self._unpack(arrived)
        taken = [[*self._taken(weights, number), *inputs[number]] for number in range(self.num_slices)]
        sources = [*weights, *(x for slice_ in inputs for x in slice_)]
        homes = self.traces.first.homes
        together = self.workers.in_forward_pass
        return StagedForward(trace, self.groups, arrived, sources, taken, homes, self._sum_up, together)

    def _unpack(self, arrived: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[list[tf.Tensor]]]:
        """Return the weights of all copies, and each slice's other inputs."""
        weights = []
        for buffer, (bucket, device) in zip(arrived, self.copies, strict=False):
            with tf.device(device):
                weights += self.packing.open(buffer, bucket)
        rest = list(arrived[len(self.copies) :])
        each = len(rest) // self.num_slices
        return weights, [rest[number * each : (number + 1) * each] for number in range(self.num_slices)]

    def _taken(self, of_copies: Sequence[tf.Tensor], number: int) -> list[tf.Tensor]:
        """Return the weights that a slice takes, in order."""
        positions = self._positions(number)
        return [of_copies[positions[weight]] for weight in range(self.num_weights)]

    def _positions(self, number: int) -> dict[int, int]:
        """Return the positions of a slice's weights among the weights of all copies."""
        members = [(weight, copy.device) for copy in self.copies for weight in copy.bucket.members]
        group, homes = self.groups[number], self.traces.first.homes
        return {w: n for n, (w, device) in enumerate(members) if device == group[homes[w]]}


def _plus(one: Gradient, another: Gradient, rows: Rows) -> Gradient:
    if one is None or another is None:
        return another if one is None else one
    if isinstance(one, tf.IndexedSlices) and isinstance(another, tf.IndexedSlices):
        return together([one, another], rows)
    return dense(one) + dense(another)
