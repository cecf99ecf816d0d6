"""The order in which slices go through devices. A GPU runs what it is given in the order in which it is given it."""

from collections.abc import Iterator, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.stages import Stage
from multigpu.engines.tensorflow.private_api.graphs import side_by_side
from multigpu.plan.groups import Group

IN_ORDER = ("GPU",)  # types of devices that run one thing after the other, and are told what before it is run
AHEAD = 2  # slices that a stage may be launched before the next stage: so many keep both devices at work


class LaunchOrder:
    """Has each slice begin a stage when the slice before it has been launched there.

    TensorFlow launches what is ready: a CPU runs it as it can, and is left alone. On a GPU, slices would take turns op
    by op, none would be done before the others, and the device of the next part would wait for all of them. Nor is a
    stage launched for all slices before the next stage is for any: what it gives would wait in memory.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        """Takes the devices of each slice."""
        self._groups = groups
        self._made: dict[tuple[int, str, int], list[tf.Tensor]] = {}  # what a stage gave last for a slice, in a graph

    def slices(self, num_stages: int) -> Iterator[tuple[int, int]]:
        """Numbers of stages and slices in the order in which they are launched: a stage begins one slice later."""
        behind = [self._groups[:number].count(group) for number, group in enumerate(self._groups)]
        for clock in range(num_stages + max(behind)):
            for stage in range(num_stages):
                yield from ((stage, number) for number, place in enumerate(behind) if place == clock - stage)

    def run(
        self, stage: Stage, following: Stage | None, number: int, taken: Sequence[tf.Tensor], waits: Sequence[bool]
    ) -> list[tf.Tensor]:
        """Run a stage for a slice and return its results.

        Args:
            stage: to run.
            following: the stage after it, if any.
            number: of the slice.
            taken: what the stage takes.
            waits: for each of these, whether it is of this slice alone, and so waits for the slices before.
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
    """The last results of a function, for what is to wait until it has run.

    They are copied: what waits for the function itself waits for nothing, once TensorFlow has put its ops in its place.
    """
    return [tf.identity(x) for x in [x for x in made if x.dtype.is_floating][-2:]]
