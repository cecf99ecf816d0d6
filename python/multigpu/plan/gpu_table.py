"""A table of the GPUs of this machine."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from multigpu.base.table import Table, megabytes

SEEN = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuRow:
    """One device that `gpus` counts.

    Attributes:
        id: its number, as `gpus=[...]` takes it.
        name: its name, as `gpus=[...]` takes it, such as `"GPU:0"`.
        physical: the hardware, such as `"GPU:0, NVIDIA A100"`. Several devices may be parts of one GPU.
        memory_total: bytes that Keras may use there. None if unknown: for CPUs, and for GPUs before TensorFlow has
            started its devices.
        memory_free: the bytes of these that this process does not use, or None.
    """

    id: int
    name: str
    physical: str
    memory_total: int | None
    memory_free: int | None


class GpuTable(Table[GpuRow]):
    """A table with one row per device. If there are no devices, its text gives the reason.

    Attributes:
        why_none: the reason why there are no devices.
    """

    why_none: Callable[[], str]
    of = GpuRow
    head = ("id", "name", "physical device", "memory total", "memory free")

    def text(self, width: int | None = None) -> str:
        """Return the table as text, or the reason why it has no rows."""
        return super().text(width) if self else f"No GPU: {self.why_none()}"

    def cells(self, row: GpuRow) -> list[str]:
        """Return the cells of a row as text."""
        return [str(row.id), row.name, row.physical, megabytes(row.memory_total), megabytes(row.memory_free)]


def why_hidden() -> str | None:
    """Return the reason why no GPU is visible, if CUDA_VISIBLE_DEVICES hides all of them."""
    value = os.environ.get(SEEN, "0")
    if value.split(",")[0].strip() in ("", "-1", "none", "NoDevFiles"):
        return f"{SEEN}={value!r} hides all GPUs. Unset it, or set it to the numbers of those to use."
    return None


def seen_devices() -> str:
    """Return the value of CUDA_VISIBLE_DEVICES in words."""
    value = os.environ.get(SEEN)
    return f"{SEEN} is not set: all GPUs are visible" if value is None else f"{SEEN}={value!r}"
