"""The training strategies that are compared: this package and its peers."""

from collections.abc import Callable

import keras
import tensorflow as tf

import multigpu
from bench.lib.keras2_algorithm import Keras2Algorithm
from bench.lib.workloads import Workload

MERGED_ON_GPU = "multigpu, cpu_merge=False"
STRATEGIES = ("one device", "multigpu", "MirroredStrategy", "Keras 2 algorithm")


def make(strategy: str, workload: Workload, optimizer: Callable[[], keras.Optimizer] | None = None) -> keras.Model:
    """A compiled model that trains with this strategy on all devices there are."""
    devices = multigpu.available_gpus()
    if strategy == "one device":
        return workload.compiled(workload.build(), optimizer)
    if strategy in ("multigpu", MERGED_ON_GPU):
        parallel = multigpu.multi_gpu_model(workload.build(), gpus=devices, cpu_merge=strategy == "multigpu")
        return workload.compiled(parallel, optimizer)
    if strategy == "Keras 2 algorithm":
        return workload.compiled(Keras2Algorithm(workload.build(), devices), optimizer)
    with mirrored(devices).scope():
        return workload.compiled(workload.build(), optimizer)


def mirrored(devices: list[str]) -> tf.distribute.Strategy:
    """MirroredStrategy; between parts of one GPU its usual library, NCCL, does not work."""
    split = len(devices) > len(tf.config.list_physical_devices("GPU")) > 0
    reduction = tf.distribute.HierarchicalCopyAllReduce() if split else None
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
