"""A sum over workers: one collective op of TensorFlow, under numbers that all workers find by themselves."""

import itertools
import weakref
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.collective import collective_sum, number_of

_occurrences: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # graph → label → how often


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
        instance = number_of(f"{self.name}|{label}|{_occurrence(label)}|{x.dtype.name}")
        return collective_sum(x, self.size, self.name, instance, self.timeout_seconds)


def _occurrence(label: str) -> int:
    """How often this label was used before in the function that is being traced, which may call a model twice."""
    if tf.executing_eagerly():
        return 0  # one after the other
    counts = _occurrences.setdefault(_outermost(tf.compat.v1.get_default_graph()), {})
    return next(counts.setdefault(label, itertools.count()))


def _outermost(graph: tf.Graph) -> tf.Graph:
    """The graph of the whole function: those of branches, loops and functions inside of it run in one step with it."""
    while isinstance(getattr(graph, "outer_graph", None), type(graph)):
        graph = graph.outer_graph
    return graph
