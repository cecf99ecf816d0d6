"""The one collective op: a sum over devices that run the same thing, of one machine or of several."""

import zlib

import tensorflow as tf

LARGEST = 0x7FFFFFFF  # of TensorFlow's numbers


def collective_sum(x: tf.Tensor, size: int, group: str, instance: int, timeout_seconds: float) -> tf.Tensor:
    """The sum of `x` over a group of devices, on each of them: the device scope around says which one this is.

    Args:
        x: of the same shape and type everywhere.
        size: how many devices.
        group: what tells this group from others, the same everywhere.
        instance: number of this sum, the same everywhere and no other sum's.
        timeout_seconds: how long to wait for all of them; one that never arrives ends in an error. 0 is no limit.
    """
    # The first version of this op needs no ordering token, unlike its successor, which waits for ever without one.
    return tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=size,
        group_key=_groups.of(group),
        instance_key=instance,
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        communication_hint="ring",  # works between any devices; NCCL does not between parts of one GPU
        timeout_seconds=timeout_seconds,
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
