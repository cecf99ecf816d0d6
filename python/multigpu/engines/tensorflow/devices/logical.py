"""Which devices there are, and how to stand in for GPUs that are not there."""

import functools

import tensorflow as tf

from multigpu.arguments import check_whole_number, shown

MOST_DEVICES = 1024  # more than any machine has: a larger number is a slip, and a list of so many would take for ever
MOST_MEGABYTES = 1 << 40  # bytes have to fit into 64 bits
STARTED = (
    "Expected `simulate_gpus()` to be called before TensorFlow uses a device: TensorFlow fixes its devices at first "
    "use. Received simulate_gpus({n}) after TensorFlow had started with {devices}. Call `multigpu.simulate_gpus({n})` "
    "right after the imports, in a fresh process (in a notebook: restart the kernel)."
)


def available_gpus() -> list[str]:
    """Names of the devices that `multi_gpu_model(gpus=...)` counts, in order of their ids.

    These are the logical GPUs that TensorFlow sees, after `CUDA_VISIBLE_DEVICES`. On a machine without a GPU they are
    the logical CPU devices made by `simulate_gpus()`, and without that there are none. Asking does not start
    TensorFlow's devices, so `simulate_gpus()` can still be called. `python -m multigpu devices` reports details.

    Returns:
        A list of names such as `["GPU:0", "GPU:1"]`, empty when there is no GPU. Element `i` is the device that the
        id `i` means in `gpus=[...]`.

    Example:
        >>> import multigpu
        >>> multigpu.simulate_gpus(2)
        >>> multigpu.available_gpus()
        ['CPU:0', 'CPU:1']
    """
    gpus = _logical("GPU")
    if gpus:
        return gpus
    cpus = _logical("CPU")
    return cpus if len(cpus) > 1 else []  # one CPU device is the CPU itself, several were made on purpose


def simulate_gpus(n: int, memory_limit: int = 2048) -> None:
    """Splits this machine's one GPU, or else its CPU, into `n` logical devices, so that `gpus=n` means those.

    On a machine without a GPU, they answer to the names of GPUs as well: `"GPU:0"` is the first one. Results are those
    of real GPUs; speed is not. Call it once, before anything else uses TensorFlow. On a machine that has `n` GPUs or
    more, there is nothing to do.

    Args:
        n: number of devices, from 1 to 1,024.
        memory_limit: memory of each device in MB, when a GPU is split. A CPU is not limited.

    Raises:
        ValueError: `n` or `memory_limit` is not a whole number of 1 or more, or this machine has several GPUs, but
            fewer than `n`.
        RuntimeError: TensorFlow has started, so its devices are fixed.

    Example:
        >>> import multigpu
        >>> multigpu.simulate_gpus(4)
    """
    check_whole_number("n", n, MOST_DEVICES, "simulate_gpus(2)")
    check_whole_number("memory_limit", memory_limit, MOST_MEGABYTES, "memory_limit=2048", ", in MB")
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
def _here() -> tuple[str | None, int | None]:
    """The job and task of this process, in a cluster."""
    spec = tf.DeviceSpec.from_string(tf.config.list_logical_devices("CPU")[0].name)
    return spec.job, spec.task


def present_device(device: object, cure: str) -> str:
    """The short name of a device that is there, or a ValueError for the argument `device`, which ends in a cure."""
    present = visible_devices()["others"]
    name = _short_name(device) if isinstance(device, str) else None
    name = name and stand_in(name, available_gpus())
    if name not in present:
        raise ValueError(f"Expected `device` to be one of {present}. Received: device={shown(device)}. {cure}")
    return name


def stand_in(name: str, gpus: list[str]) -> str:
    """The simulated device that answers to the name of a GPU, or the name itself.

    Args:
        name: short name of a device.
        gpus: the devices that `gpus` counts; one CPU alone stands in for nothing.
    """
    kind, number = name.split(":")
    simulated = f"CPU:{number}"
    return simulated if kind == "GPU" and len(gpus) > 1 and simulated in gpus else name


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
    """`"/job:localhost/replica:0/task:0/device:GPU:1"` → `"GPU:1"`; `"/gpu:1"` → `"GPU:1"`; `"GPU"` → `"GPU:0"`.

    Raises:
        ValueError: the name means no one device of this machine.
    """
    try:
        spec = tf.DeviceSpec.from_string(device if device.startswith("/") else f"/{device}")
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not the name of a device: {device!r}") from error
    here = (spec.job in (None, "localhost") and not spec.task) or (spec.job, spec.task) == _here()
    here = here and not spec.replica
    if spec.device_type is None or "*" in device or not here:
        raise ValueError(f"not the name of a device of this machine: {device!r}")
    return f"{spec.device_type}:{spec.device_index or 0}"
