"""A sum over workers: one collective op of TensorFlow, under numbers that all workers find by themselves.

The op has no time limit of its own: for each op that has one, TensorFlow starts a thread that sleeps until then, so
that a training of a few minutes has thousands (tensorflow/tensorflow#62466). `failures.py` ends waiting in vain.
"""

import weakref
import zlib
from collections import Counter
from dataclasses import dataclass

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import outermost

_sums: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # the function that is being traced → its sums


@dataclass(frozen=True)
class Group:
    """Devices, one or several of each worker, that sum something together.

    Attributes:
        size: how many devices, over all workers.
        name: what tells this group from others.
    """

    size: int
    name: str

    def sum(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """The sum of `x` over the group, on each of its devices: the device scope around says which one this is.

        Args:
            x: of the same shape and type everywhere.
            label: what is summed, and its shape if that changes from trace to trace; the same everywhere.
        """
        return collective_sum(x, self.size, self.name, self._number(x, label))

    def all(self, x: tf.Tensor, label: str) -> tf.Tensor:
        """The `x` of all devices of the group, stacked, on each of them; all else as for a sum."""
        return collective_stack(x, self.size, self.name, self._number(x, label))

    def _number(self, x: tf.Tensor, label: str) -> int:
        sums = _Sums() if tf.executing_eagerly() else _sums.setdefault(outermost_graph(), _Sums())
        return sums.number(self.name, label, x.dtype.name)


class _Sums:
    """The sums of one function, which may call a model twice; outside of any, one sum is made after the other."""

    def __init__(self) -> None:
        self._occurred: Counter[str] = Counter()
        self._numbers = Numbers()

    def number(self, group: str, label: str, dtype: str) -> int:
        occurrence, self._occurred[label] = self._occurred[label], self._occurred[label] + 1
        return self._numbers.of(f"{group}|{label}|{occurrence}|{dtype}")


def outermost_graph() -> tf.Graph:
    """The graph of the whole function: those of branches, loops and functions inside of it run in one step with it."""
    return outermost(tf.compat.v1.get_default_graph())


LARGEST = 0x7FFFFFFF  # of TensorFlow's numbers


def collective_sum(x: tf.Tensor, size: int, group: str, instance: int) -> tf.Tensor:
    """The sum of `x` over a group of devices, on each of them: the device scope around says which one this is.

    Args:
        x: of the same shape and type everywhere.
        size: how many devices.
        group: what tells this group from others, the same everywhere.
        instance: number of this sum, the same everywhere and no other sum's.
    """
    # The first version of this op needs no ordering token, unlike its successor, which waits for ever without one.
    return tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=size,
        group_key=group_number(group),
        instance_key=instance,
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        communication_hint="ring",  # works between any devices; NCCL does not between parts of one GPU
    )


def collective_stack(x: tf.Tensor, size: int, group: str, instance: int) -> tf.Tensor:
    """The `x` of a group of devices, stacked in their order, on each of them; all else as for a sum."""
    return tf.raw_ops.CollectiveGather(
        input=x[tf.newaxis],
        group_size=size,
        group_key=group_number(group),
        instance_key=instance,
        shape=[size, *x.shape],
        communication_hint="ring",
    )


class Numbers:
    """TensorFlow tells groups and sums apart by number: these depend on names alone, and no two names have the same.

    Whoever sums together has to meet the names in the same order.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, name: str) -> int:
        """The number of a name, from 0 to 2³¹ − 1."""
        number = _hashed(name)
        while self._names.setdefault(number, name) != name:
            number = (number + 1) & LARGEST
        return number


def _hashed(name: str) -> int:
    return zlib.crc32(name.encode()) & LARGEST


_groups = Numbers()


def group_number(name: str) -> int:
    """The number of a group of devices."""
    return _groups.of(name)
