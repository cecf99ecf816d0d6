"""Sum over workers with one collective op of TensorFlow, under numbers that each worker computes by itself.

The op has no time limit of its own. For each op that has one, TensorFlow starts a thread that sleeps until the limit,
so a training of a few minutes would have thousands (tensorflow/tensorflow#62466). `failures.py` ends useless waiting.
"""

import weakref
import zlib
from collections import Counter
from dataclasses import dataclass

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import outermost

_sums: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # function that is being traced → its sums


@dataclass(frozen=True)
class Group:
    """Devices, one or several of each worker, that sum something together.

    Attributes:
        size: the number of devices of all workers.
        name: a name that no other group has.
    """

    size: int
    name: str

    def sum(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """Return the sum of `x` over the group, on each of its devices. The device scope around the call selects one.

        Args:
            x: a tensor, of the same shape and type on all devices.
            label: the name of the sum, with its shape if the shape changes between traces. It is the same on all
                workers.
        """
        # The first version of this op needs no ordering token, unlike its successor, which waits for ever without one.
        return tf.raw_ops.CollectiveReduce(
            input=x,
            group_size=self.size,
            group_key=_groups.of(self.name),
            instance_key=self._number(x, label),
            merge_op="Add",
            final_op="Id",
            subdiv_offsets=[0],
            communication_hint="ring",  # works between any devices; NCCL does not work between parts of one GPU
        )

    def _number(self, x: tf.Tensor, label: str) -> int:
        sums = _Sums() if tf.executing_eagerly() else _sums.setdefault(outermost_graph(), _Sums())
        return sums.number(self.name, label, x.dtype.name)


class _Sums:
    """The sums of one function, which may call a model twice. Outside of functions, sums run one after the other."""

    def __init__(self) -> None:
        self._occurred: Counter[str] = Counter()
        self._numbers = Numbers()

    def number(self, group: str, label: str, dtype: str) -> int:
        occurrence, self._occurred[label] = self._occurred[label], self._occurred[label] + 1
        return self._numbers.of(f"{group}|{label}|{occurrence}|{dtype}")


def outermost_graph() -> tf.Graph:
    """Return the graph of the whole function. The graphs of branches, loops and functions inside run in its step."""
    return outermost(tf.compat.v1.get_default_graph())


LARGEST = 0x7FFFFFFF  # the range of TensorFlow's numbers


class Numbers:
    """Numbers for the names of groups and sums. They depend only on names, and no two names have the same number.

    Workers that sum together must ask for the names in the same order.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, name: str) -> int:
        """Return the number of a name, from 0 to 2³¹ − 1."""
        number = _hashed(name)
        while self._names.setdefault(number, name) != name:
            number = (number + 1) & LARGEST
        return number


def _hashed(name: str) -> int:
    return zlib.crc32(name.encode()) & LARGEST


_groups = Numbers()  # of groups of devices
