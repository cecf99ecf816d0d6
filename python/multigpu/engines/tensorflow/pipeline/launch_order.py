"""Order the slices on devices. A GPU runs work in the order in which it receives it."""

from collections.abc import Iterator, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.stages import Stage
from multigpu.engines.tensorflow.private_api.graphs import side_by_side
from multigpu.plan.groups import Group

IN_ORDER = ("GPU",)  # types of devices that run one op after the other, and receive ops before they run
AHEAD = 2  # number of slices by which a stage may be ahead of the next: enough to keep both devices busy


class LaunchOrder:
    """Starts a stage for a slice when the slice before it has been launched there.

    TensorFlow launches ops that are ready. A CPU runs them in any order, so it needs no order here. On a GPU, slices
    would take turns op by op, none would finish before the others, and the device of the next part would wait for all
    of them. A stage is also not launched for all slices before the next stage, because its results would wait in
    memory.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        """Store the devices of each slice."""
        self._groups = groups
        self._made: dict[tuple[int, str, int], list[tf.Tensor]] = {}  # last results of a stage for a slice, in a graph

    def slices(self, num_stages: int) -> Iterator[tuple[int, int]]:
        """Return the numbers of stages and slices in launch order: each stage begins one slice later."""
        behind = [self._groups[:number].count(group) for number, group in enumerate(self._groups)]
        for clock in range(num_stages + max(behind)):
            for stage in range(num_stages):
                yield from ((stage, number) for number, place in enumerate(behind) if place == clock - stage)

    def run(
        self, stage: Stage, following: Stage | None, number: int, taken: Sequence[tf.Tensor], waits: Sequence[bool]
    ) -> list[tf.Tensor]:
        """Run a stage for a slice and return its results.

        Args:
            stage: the stage to run.
            following: the stage after it, if any.
            number: the number of the slice.
            taken: the inputs of the stage.
            waits: for each input, whether only this slice has it, so that it waits for the slices before.
        """
        assert stage.function is not None
        group = self._groups[number]
        if self._groups.count(group) == 1:  # no other slice is on its devices
            with tf.device(group[stage.part]), side_by_side():
                return stage.function(*taken)
        before = [other for other in range(number) if self._groups[other] == group]
        after = [x for other in before[-1:] for x in self._of(stage, other)]
        if following is not None and len(before) >= AHEAD:
            after += self._of(following, before[-AHEAD])
        if not group[stage.part].startswith(IN_ORDER):
            after = []
        with tf.device(group[stage.part]):
            with tf.control_dependencies(after):
                given = [tf.identity(x) if wait else x for x, wait in zip(taken, waits, strict=True)]
            made = stage.function(*given)
            self._made[self._key(stage, number)] = last_of(made)
        return made

    def _of(self, stage: Stage, number: int) -> list[tf.Tensor]:
        return self._made[self._key(stage, number)]

    def _key(self, stage: Stage, number: int) -> tuple[int, str, int]:
        return id(tf.compat.v1.get_default_graph()), stage.name, number


def last_of(made: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the last results of a function, for ops that have to wait until it has run.

    They are copied: an op that waits for the function itself does not wait after TensorFlow has inlined the function.
    """
    return [tf.identity(x) for x in [x for x in made if x.dtype.is_floating][-2:]]
