"""Sum over workers with one collective op of TensorFlow, under numbers that each worker computes by itself.

The op has no time limit of its own. For each op that has one, TensorFlow starts a thread that sleeps until the limit,
so a training of a few minutes would have thousands (tensorflow/tensorflow#62466). `failures.py` ends useless waiting.
"""

import weakref
import zlib
from collections import Counter

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.graphs import outermost

_sums: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # function that is being traced → its sums


def group_sum(x: tf.Tensor, size: int, group: str, label: str) -> tf.Tensor:
    """Return the sum of `x` over a group of devices, on each of them. The device scope around the call selects one.

    Args:
        x: a tensor, of the same shape and type on all devices.
        size: the number of devices of all workers: one or several of each.
        group: the name of the group.
        label: the name of the sum, with its shape if the shape changes between traces. It is the same on all workers.
    """
    group = f"{size} of {group}"
    # outside of functions, sums run one after the other
    sums = Numbers() if tf.executing_eagerly() else _sums.setdefault(outermost_graph(), Numbers())
    # The first version of this op needs no ordering token, unlike its successor, which waits for ever without one.
    return tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=size,
        group_key=_groups.of(group),
        instance_key=sums.of_next(f"{group}|{label}|{x.dtype.name}"),
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        communication_hint="ring",  # works between any devices; NCCL does not work between parts of one GPU
    )


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
        self._occurred: Counter[str] = Counter()

    def of(self, name: str) -> int:
        """Return the number of a name, from 0 to 2³¹ − 1."""
        number = _hashed(name)
        while self._names.setdefault(number, name) != name:
            number = (number + 1) & LARGEST
        return number

    def of_next(self, name: str) -> int:
        """Return another number of a name each time: a function may call a model twice."""
        self._occurred[name] += 1
        return self.of(f"{name}|{self._occurred[name]}")


def _hashed(name: str) -> int:
    return zlib.crc32(name.encode()) & LARGEST


_groups = Numbers()  # of groups of devices
