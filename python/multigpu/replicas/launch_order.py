"""The order in which slices go through a device. A GPU runs what it is given in the order in which it is given it."""

from collections.abc import Sequence

import tensorflow as tf

from multigpu.replicas.stages import Stage


class LaunchOrder:
    """Has each slice begin a stage when the slice before it has been launched there.

    TensorFlow launches what is ready. Without an order, slices that are on one device would take turns op by op, none
    would be done before the others, and the device of the next part would wait for all of them.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, str], Sequence[tf.Tensor]] = {}

    def run(
        self, stage: Stage, device: str, taken: Sequence[tf.Tensor], waits: Sequence[bool]
    ) -> list[tf.Tensor]:
        """What a stage gives for one more slice.

        Args:
            stage: to run.
            device: where.
            taken: what it takes.
            waits: for each of these, whether it is of this slice alone, and so waits for the slice before.
        """
        assert stage.function is not None
        key = (id(tf.compat.v1.get_default_graph()), id(stage), device)
        with tf.device(device):
            with tf.control_dependencies(self._last.get(key, ())):
                given = [tf.identity(x) if wait else x for x, wait in zip(taken, waits, strict=True)]
            made = stage.function(*given)
            self._last[key] = made[:1]
        return made
