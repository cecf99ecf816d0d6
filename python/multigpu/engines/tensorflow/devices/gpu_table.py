"""Which GPUs there are, as a table; and why there are none."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from multigpu.base.table import Table, megabytes
from multigpu.engines.tensorflow.devices.logical import available_gpus, physical_of
from multigpu.engines.tensorflow.private_api.runtime import devices_are_fixed, memory_limits

SEEN = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/version")  # is there while the driver is loaded


@dataclass(frozen=True)
class GpuRow:
    """One device that `gpus` counts.

    Attributes:
        id: its number, as `gpus=[...]` takes it.
        name: its name, as `gpus=[...]` takes it, such as `"GPU:0"`.
        physical: the hardware, such as `"GPU:0, NVIDIA A100"`; several devices may be parts of one.
        memory_total: bytes that TensorFlow may use there, or None where it does not tell: of CPUs, and of GPUs before
            TensorFlow has started its devices.
        memory_free: those of them that are not in use by this process, or None.
    """

    id: int
    name: str
    physical: str
    memory_total: int | None
    memory_free: int | None


class GpuTable(Table[GpuRow]):
    """One row per device, which prints as a table, or says why there is none."""

    __slots__ = ()
    of = GpuRow
    head = ("id", "name", "physical device", "memory total", "memory free")

    def text(self, width: int | None = None) -> str:
        """The table as text, or why it has no rows."""
        return super().text(width) if self else f"No GPU: {why_no_gpu()}"

    def cells(self, row: GpuRow) -> list[str]:
        """A row as words."""
        return [str(row.id), row.name, row.physical, megabytes(row.memory_total), megabytes(row.memory_free)]


def device_table() -> GpuTable:
    """The devices that `gpus` counts. TensorFlow's devices are not started by this."""
    return GpuTable(_row(number, name) for number, name in enumerate(available_gpus()))


def seen_devices() -> str:
    """CUDA_VISIBLE_DEVICES, in words."""
    value = os.environ.get(SEEN)
    return f"{SEEN} is not set: all GPUs are seen" if value is None else f"{SEEN}={value!r}"


def why_no_gpu() -> str:
    """What keeps TensorFlow from seeing a GPU, and what to do."""
    value = os.environ.get(SEEN)
    if value is not None and value.split(",")[0].strip() in ("", "-1", "none", "NoDevFiles"):
        return f"{SEEN}={value!r} hides all GPUs. Unset it, or set it to the numbers of those to use."
    if tf.config.list_physical_devices("GPU"):
        return "`tf.config.set_visible_devices()` hides them from this process. Leave that call out."
    if not tf.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA. Install `pip install 'multigpu[cuda]'` on Linux."
    if not DRIVER.exists():
        return (
            "this machine has no NVIDIA driver, or no GPU. To try a script without, call `multigpu.simulate_gpus(2)`."
        )
    return (
        "there is an NVIDIA driver, but TensorFlow cannot use it, mostly for want of CUDA's libraries. "
        "Install `pip install 'multigpu[cuda]'`, and see what TensorFlow prints when it starts."
    )


def _row(number: int, name: str) -> GpuRow:
    total = _memory_total(name)
    used = tf.config.experimental.get_memory_info(name)["current"] if total is not None else 0
    return GpuRow(number, name, _hardware(name), total, None if total is None else total - used)


def _hardware(name: str) -> str:
    """The physical device of a logical one, with the words that TensorFlow has for it."""
    device = physical_of(name)
    details = tf.config.experimental.get_device_details(device)
    return ", ".join([device.name.rsplit("physical_device:", 1)[-1], *_present([details.get("device_name")])])


def _present(words: Sequence[str | None]) -> list[str]:
    return [word for word in words if word]


def _memory_total(name: str) -> int | None:
    if not name.startswith("GPU") or not devices_are_fixed():
        return None
    return memory_limits().get(name)
