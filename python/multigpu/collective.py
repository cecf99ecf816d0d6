"""The one collective op: a sum over devices that run the same thing, of one machine or of several."""

import zlib

import tensorflow as tf


def collective_sum(x: tf.Tensor, size: int, group: str, instance: int, timeout_seconds: float) -> tf.Tensor:
    """The sum of `x` over a group of devices, on each of them: the device scope around says which one this is.

    Args:
        x: of the same shape and type everywhere.
        size: how many devices.
        group: what tells this group from others, the same everywhere.
        instance: number of this sum, the same everywhere and no other sum's.
        timeout_seconds: how long to wait for all of them; one that never arrives ends in an error.
    """
    # The first version of this op needs no ordering token, unlike its successor, which waits for ever without one.
    return tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=size,
        group_key=number_of(group),
        instance_key=instance,
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        communication_hint="ring",  # works between any devices; NCCL does not between parts of one GPU
        timeout_seconds=timeout_seconds,
    )


def number_of(name: str) -> int:
    """TensorFlow tells groups and sums apart by number: this one depends on the name alone."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF
