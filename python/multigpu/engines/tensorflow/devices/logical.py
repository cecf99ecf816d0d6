"""List TensorFlow's logical devices, and simulate GPUs if there are none."""

import functools

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.plan import device_names
from multigpu.plan.device_names import HERE, present_name, started_before


def available_gpus() -> list[str]:
    """Return the logical GPUs. If there are none, return the logical CPU devices that simulate them, if any."""
    gpus = _logical("GPU")
    if gpus:
        return gpus
    cpus = _logical("CPU")
    return cpus if len(cpus) > 1 else []  # one CPU device is the CPU itself; several were made intentionally


def simulate(n: int, memory_limit: int) -> None:
    """Split the one GPU, or if there is none the CPU, into `n` logical devices of `memory_limit` MB.

    Raises:
        ValueError: there are several GPUs, but fewer than `n`.
        RuntimeError: TensorFlow has started, so its devices are fixed.
    """
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) >= n > 1:
        return  # real ones exist
    if len(physical) > 1:
        raise refuse(
            f"one GPU or none to simulate {n} GPUs",
            f"a machine with {len(physical)} GPUs",
            f"Use these, `multi_gpu_model(model, gpus={len(physical)})`, or hide all but one with "
            "CUDA_VISIBLE_DEVICES=0.",
        )
    limit = memory_limit if physical else None
    device = physical[0] if physical else tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            device, [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for _ in range(n)]
        )
    except RuntimeError as error:
        raise started_before(n, "TensorFlow", _logical("GPU") + _logical("CPU")) from error


def visible_devices(one_is_enough: bool = False) -> dict[str, list[str]]:
    """Return the names of all logical devices by role: those that `gpus` counts, and `others` to ask for by name.

    Args:
        one_is_enough: whether a single CPU counts, as it does if several machines train together.
    """
    others = _logical("GPU") + _logical("CPU")
    return {"gpus": available_gpus() or (others if one_is_enough else []), "others": others}


@functools.cache  # TensorFlow fixes its devices when it starts
def _here() -> str:
    """Return this process's name in a cluster, as TensorFlow has it."""
    spec = tf.DeviceSpec.from_string(tf.config.list_logical_devices("CPU")[0].name)
    return f"/job:{spec.job}/replica:{spec.replica}/task:{spec.task}"


def present_device(device: object, cure: str) -> str:
    """Return the short name of an existing device, or raise a ValueError for `device` that ends in a remedy."""
    return present_name(device, cure, visible_devices(), short_name)


def _logical(kind: str) -> list[str]:
    """Return the names of the logical devices of a kind, without starting them, which would fix their number."""
    return [f"{kind}:{number}" for number in range(sum(map(_num_parts, tf.config.get_visible_devices(kind))))]


def _num_parts(device: tf.config.PhysicalDevice) -> int:
    return len(tf.config.get_logical_device_configuration(device) or [None])


def physical_of(name: str) -> tf.config.PhysicalDevice:
    """Return the physical device that a logical one, such as `"GPU:1"`, is or is part of."""
    kind, number = name.split(":")
    devices = tf.config.get_visible_devices(kind)
    return [device for device in devices for _ in range(_num_parts(device))][int(number)]


def short_name(device: str) -> str:
    """Return the short name of a device of this process, also for its name in a cluster.

    Raises:
        ValueError: the name does not mean exactly one device of this process.
    """
    of_cluster = str(device).startswith("/job:") and not str(device).startswith(HERE)  # TensorFlow is not started
    return device_names.short_name(device, _here() if of_cluster else HERE)
