"""List TensorFlow's logical devices, and simulate GPUs if there are none."""

import functools

import tensorflow as tf

from multigpu.base.arguments import shown
from multigpu.plan import device_names
from multigpu.plan.device_names import HERE, stand_in

STARTED = (
    "Expected `simulate_gpus()` to be called before TensorFlow uses a device: TensorFlow fixes its devices at first "
    "use. Received simulate_gpus({n}) after TensorFlow had started with {devices}. Call `multigpu.simulate_gpus({n})` "
    "right after the imports, in a fresh process (in a notebook: restart the kernel)."
)


def available_gpus() -> list[str]:
    """The logical GPUs; where there are none, the logical CPU devices that stand in for them, if there are any."""
    gpus = _logical("GPU")
    if gpus:
        return gpus
    cpus = _logical("CPU")
    return cpus if len(cpus) > 1 else []  # one CPU device is the CPU itself, several were made on purpose


def simulate(n: int, memory_limit: int) -> None:
    """Splits the one GPU, or else the CPU, into `n` logical devices of `memory_limit` MB.

    Raises:
        ValueError: there are several GPUs, but fewer than `n`.
        RuntimeError: TensorFlow has started, so its devices are fixed.
    """
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) >= n > 1:
        return  # real ones are there
    if len(physical) > 1:
        raise ValueError(
            f"Expected one GPU or none to simulate {n} GPUs. Received: a machine with {len(physical)} GPUs. Use these, "
            f"`multi_gpu_model(model, gpus={len(physical)})`, or hide all but one with CUDA_VISIBLE_DEVICES=0."
        )
    limit = memory_limit if physical else None
    device = physical[0] if physical else tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            device, [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for _ in range(n)]
        )
    except RuntimeError as error:
        started = ", ".join(_logical("GPU") + _logical("CPU"))
        raise RuntimeError(STARTED.format(n=n, devices=started)) from error


def visible_devices(one_is_enough: bool = False) -> dict[str, list[str]]:
    """Names of all logical devices by role: `gpus` counts and ids, `others` that can be asked for by name.

    Args:
        one_is_enough: whether a CPU alone counts, as it does where several machines train together.
    """
    others = _logical("GPU") + _logical("CPU")
    return {"gpus": available_gpus() or (others if one_is_enough else []), "others": others}


@functools.cache  # TensorFlow fixes its devices when it starts
def _here() -> str:
    """This process in a cluster, as TensorFlow names it."""
    spec = tf.DeviceSpec.from_string(tf.config.list_logical_devices("CPU")[0].name)
    return f"/job:{spec.job}/replica:{spec.replica}/task:{spec.task}"


def present_device(device: object, cure: str) -> str:
    """The short name of a device that is there, or a ValueError for the argument `device`, which ends in a cure."""
    present = visible_devices()["others"]
    name = _short_name(device) if isinstance(device, str) else None
    name = name and stand_in(name, available_gpus())
    if name not in present:
        raise ValueError(f"Expected `device` to be one of {present}. Received: device={shown(device)}. {cure}")
    return name


def _short_name(device: str) -> str | None:
    try:
        return short_name(device)
    except ValueError:
        return None


def _logical(kind: str) -> list[str]:
    """Names of the logical devices of a kind, without starting them, which would fix their number."""
    return [f"{kind}:{number}" for number in range(sum(map(_num_parts, tf.config.get_visible_devices(kind))))]


def _num_parts(device: tf.config.PhysicalDevice) -> int:
    return len(tf.config.get_logical_device_configuration(device) or [None])


def physical_of(name: str) -> tf.config.PhysicalDevice:
    """The physical device that a logical one, such as `"GPU:1"`, is or is part of."""
    kind, number = name.split(":")
    devices = tf.config.get_visible_devices(kind)
    return [device for device in devices for _ in range(_num_parts(device))][int(number)]


def short_name(device: str) -> str:
    """The short name of a device of this process, also by the name that it has in a cluster.

    Raises:
        ValueError: the name means no one device of this process.
    """
    of_cluster = str(device).startswith("/job:") and not str(device).startswith(HERE)  # else TensorFlow is not started
    return device_names.short_name(device, _here() if of_cluster else HERE)
