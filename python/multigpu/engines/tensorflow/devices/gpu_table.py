"""List the GPUs that TensorFlow finds in a table, or the reason why there are none."""

from pathlib import Path

import tensorflow as tf

from multigpu.engines.tensorflow.devices.logical import available_gpus, physical_of
from multigpu.engines.tensorflow.private_api.runtime import devices_are_fixed, memory_limits
from multigpu.plan.gpu_table import GpuRow, GpuTable, why_hidden

DRIVER = Path("/proc/driver/nvidia/version")  # exists while the driver is loaded


def device_table(start: bool = False) -> GpuTable:
    """Return the devices that `gpus` counts. Start TensorFlow's devices only if that is asked for."""
    if start:
        tf.config.list_logical_devices()
    table = GpuTable(_row(number, name) for number, name in enumerate(available_gpus()))
    table.why_none = why_no_gpu
    return table


def hide_gpus(number: int) -> None:
    """Hide the GPUs of this machine, which may be in use, from TensorFlow, which needs no `number` of others."""
    if tf.config.list_physical_devices("GPU") and not devices_are_fixed():
        tf.config.set_visible_devices([], "GPU")


def why_no_gpu() -> str:
    """Return the reason why TensorFlow finds no GPU, and what to do."""
    hidden = why_hidden()
    if hidden is not None:
        return hidden
    if tf.config.list_physical_devices("GPU"):
        return "`tf.config.set_visible_devices()` hides them from this process. Leave that call out."
    if not tf.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA. On Linux, run `pip install 'tensorflow[and-cuda]'`."
    if not DRIVER.exists():
        return (
            "this machine has no NVIDIA driver, or no GPU. To try a script without GPUs, call "
            "`multigpu.simulate_gpus(2)`."
        )
    return (
        "there is an NVIDIA driver, but TensorFlow cannot use it, often because CUDA's libraries are missing. "
        "Run `pip install 'tensorflow[and-cuda]'`, and read what TensorFlow prints when it starts."
    )


def _row(number: int, name: str) -> GpuRow:
    total = _memory_total(name)
    used = tf.config.experimental.get_memory_info(name)["current"] if total is not None else 0
    return GpuRow(number, name, _hardware(name), total, None if total is None else total - used)


def _hardware(name: str) -> str:
    """Return the physical device of a logical one, with TensorFlow's description."""
    device = physical_of(name)
    details = tf.config.experimental.get_device_details(device)
    return ", ".join(filter(None, [device.name.rsplit("physical_device:", 1)[-1], details.get("device_name")]))


def _memory_total(name: str) -> int | None:
    if not name.startswith("GPU") or not devices_are_fixed():
        return None
    return memory_limits().get(name)
