"""A sum over workers: one collective op of TensorFlow, under numbers that all workers find by themselves."""

import weakref
from collections import Counter
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.collective import Numbers, collective_sum

SHARE = 15  # numbers of 4 or 8 bytes
FEW = 15  # devices
_sums: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # the function that is being traced → its sums


@dataclass(frozen=True)
class Group:
    """Devices, one or several of each worker, that sum something together.

    Attributes:
        size: how many devices, over all workers.
        name: what tells this group from others.
        timeout_seconds: how long to wait for all of them.
    """

    size: int
    name: str
    timeout_seconds: float = field(compare=False)

    def sum(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """The sum of `x` over the group, on each of its devices: the device scope around says which one this is.

        Args:
            x: of the same shape and type everywhere.
            label: what is summed, and its shape if that changes from trace to trace; the same everywhere.
        """
        sums = _Sums() if tf.executing_eagerly() else _sums.setdefault(_outermost_graph(), _Sums())
        return collective_sum(
            x, self.size, self.name, sums.number(self.name, label, x.dtype.name), self.timeout_seconds
        )

    def sum_heard_by_all(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """The sum of few numbers at which a device that is absent is heard of by all that wait.

        TensorFlow's ring sends a chunk from each device on. An error comes back to who waits to receive: where there
        are fewer chunks, the device before the absent one may only wait to send. A chunk is a little more than one
        device's share, up to the next multiple of 64 bytes, so that of `SHARE` numbers for each of `FEW` devices all
        have some. More devices would pass too many messages for it.
        """
        flat = tf.reshape(x, [-1])
        missing = max(0, SHARE * self.size - flat.shape[0]) if self.size <= FEW else 0
        return tf.reshape(self.sum(tf.pad(flat, [[0, missing]]), label)[: flat.shape[0]], x.shape)


class _Sums:
    """The sums of one function, which may call a model twice; outside of any, one sum is made after the other."""

    def __init__(self) -> None:
        self._occurred: Counter[str] = Counter()
        self._numbers = Numbers()

    def number(self, group: str, label: str, dtype: str) -> int:
        occurrence, self._occurred[label] = self._occurred[label], self._occurred[label] + 1
        return self._numbers.of(f"{group}|{label}|{occurrence}|{dtype}")


def _outermost_graph() -> tf.Graph:
    """The graph of the whole function: those of branches, loops and functions inside of it run in one step with it."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(getattr(graph, "outer_graph", None), type(graph)):
        graph = graph.outer_graph
    return graph
