"""Run slices through the stages of a trace, forward and then backward, each on the devices of its group."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.batches.split_merge import Position
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.pipeline.launch_order import LaunchOrder, last_of
from multigpu.engines.tensorflow.pipeline.staged_trace import StagedTrace
from multigpu.engines.tensorflow.pipeline.stages import Stage, names
from multigpu.engines.tensorflow.replicas.parts import Sum
from multigpu.engines.tensorflow.replicas.tapes import Gradient
from multigpu.plan.groups import Group


class StagedForward:
    """Slices that have passed the forward stages, and can go back once.

    Attributes:
        trace: the trace with the stages.
        arrived: the inputs that arrived for all of them.
        sources: the same, unpacked.
        results: the results of all slices, one slice after the other.
    """

    def __init__(
        self,
        trace: StagedTrace,
        groups: Sequence[Group],
        arrived: Sequence[tf.Tensor],
        sources: list[tf.Tensor],
        taken: Sequence[Sequence[tf.Tensor]],
        homes: Sequence[int],
        sum_up: Callable[..., tuple[list[Gradient], list[Gradient]]],
        workers: Reduction,
    ) -> None:
        """Run the forward stages.

        Args:
            trace: the trace to run.
            groups: the devices of each slice.
            arrived: the inputs that arrived.
            sources: the same, unpacked.
            taken: which of these each slice takes.
            homes: the part that each variable is sent to. Variables are the first inputs.
            sum_up: computes gradients of the sources and of tables from those of each slice, the rows of each slice
                that count, and the last results of each slice on each part.
            workers: the workers whose slices are summed if slices are.
        """
        inputs = names(trace.reach.function.inputs)
        self.trace, self.arrived, self.sources = trace, arrived, sources
        self._groups = groups
        self._workers = workers
        self._order = LaunchOrder(groups)
        self._values = [dict(zip(inputs, of_slice, strict=False)) for of_slice in taken]
        self._homes = dict(zip(inputs, homes, strict=False))  # of variables
        self._visiting: dict[tuple[str, str], tf.Tensor] = {}  # variables, on devices of other parts
        self._ends: dict[tuple[int, int], Sequence[tf.Tensor]] = {}  # the last results of a slice on a part
        self._kept = [Position.at_end_of(of_slice).kept for of_slice in taken]
        self._sum_up = sum_up
        self._run([stage for stage in trace.stages if not stage.backward])
        self.results = [values[x.name] for values in self._values for x in trace.passes.results]

    def gradients(
        self, used: Sequence[int], upstream: Sequence[tf.Tensor], tables: Sequence[tf.Variable]
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Return the gradients of the sources and of tables, from the gradients of the used results."""
        each = len(upstream) // len(self._values)
        for number, values in enumerate(self._values):
            given = upstream[number * each : (number + 1) * each]
            values.update(zip(names(self.trace.passes.upstream), given, strict=True))
        self._run([stage for stage in self.trace.stages if stage.backward])
        found = [_valued(self.trace.passes.gradients, values) for values in self._values]
        of_tables = [_valued(self.trace.passes.of_tables, values) for values in self._values]
        ends: dict[tuple[int, int], list[tf.Tensor]] = {}
        for (number, part), made in self._ends.items():
            with tf.device(self._groups[number][part]):
                ends[number, part] = last_of(made)
        return self._sum_up(found, of_tables if tables else [], self._kept, ends)

    def _run(self, stages: Sequence[Stage]) -> None:
        """Take all slices through some stages. If slices are summed, all must arrive before any continues."""
        begins = [n for n, stage in enumerate(stages) if n == 0 or self._sums_before(stage)]
        for begin, end in itertools.pairwise([*begins, len(stages)]):
            self._sum(stages[begin])
            for position, number in self._order.slices(end - begin):
                self._launch(stages[begin:end][position : position + 2], number)

    def _launch(self, stages: Sequence[Stage], number: int) -> None:
        """Take a slice through the first of one or two consecutive stages."""
        stage, following = stages[0], stages[1] if len(stages) > 1 else None
        values = self._values[number]
        taken = [self._taken(values, x.name, stage.part, self._groups[number]) for x in stage.takes]
        waits = [x.name not in self._homes for x in stage.takes]
        made = self._order.run(stage, following, number, taken, waits)
        values.update(zip(names(stage.gives), made, strict=True))
        self._ends[number, stage.part] = made

    def _taken(self, values: Mapping[str, tf.Tensor], name: str, part: int, group: Group) -> tf.Tensor:
        """Return the inputs of a part. A variable of another part is copied to its device once, for all slices."""
        if self._homes.get(name, part) == part:
            return values[name]
        key = (name, group[part])
        if key not in self._visiting:
            with tf.device(group[part]):
                self._visiting[key] = tf.identity(values[name])
        return self._visiting[key]

    def _sums_before(self, stage: Stage) -> list[Sum]:
        """Return the sums over slices that a stage takes."""
        taken = {x.name for x in stage.takes}
        return [each for each in self.trace.traced.parts.sums if each[0].name in taken]

    def _sum(self, stage: Stage) -> None:
        """Compute the sums over slices that a stage takes."""
        for total, x, merge in self._sums_before(stage):
            if total.name not in self._values[0]:
                device = self._groups[0][stage.part]
                with tf.device(device):
                    here = (merge or _added)(tf.stack([values[x.name] for values in self._values]))
                summed = self._workers.over_workers(here, device, f"slices {total.name}", merge)
                for values in self._values:
                    values[total.name] = summed


def _valued(gradients: list[Gradient], values: dict[str, tf.Tensor]) -> list[Gradient]:
    """Return the values of gradients of the trace for a slice."""
    return tf.nest.map_structure(lambda x: None if x is None else values[x.name], gradients, expand_composites=True)


def _added(stacked: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(stacked, axis=0)
