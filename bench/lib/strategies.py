"""The ways to train that are compared: this package and its peers."""

from collections.abc import Callable

import keras
import tensorflow as tf

import multigpu
from old_algorithm import OldAlgorithm
from works import Work

WAYS = ("one device", "multigpu", "MirroredStrategy", "old algorithm")


def make(way: str, work: Work, optimizer: Callable[[], keras.Optimizer] | None = None) -> keras.Model:
    """A compiled model that trains in this way on all devices there are."""
    devices = multigpu.available_gpus()
    if way == "one device":
        return work.compiled(work.build(), optimizer)
    if way == "multigpu":
        return work.compiled(multigpu.multi_gpu_model(work.build(), gpus=devices), optimizer)
    if way == "old algorithm":
        return work.compiled(OldAlgorithm(work.build(), devices), optimizer)
    with mirrored(devices).scope():
        return work.compiled(work.build(), optimizer)


def mirrored(devices: list[str]) -> tf.distribute.Strategy:
    """MirroredStrategy; between parts of one GPU its usual library, NCCL, does not work."""
    split = len(devices) > len(tf.config.list_physical_devices("GPU")) > 0
    reduction = tf.distribute.HierarchicalCopyAllReduce() if split else None
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
