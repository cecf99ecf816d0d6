"""The GPUs of this machine, as a table."""

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
    """One row per device, which prints as a table, or says why there is none.

    Attributes:
        why_none: tells it.
    """

    why_none: Callable[[], str]
    of = GpuRow
    head = ("id", "name", "physical device", "memory total", "memory free")

    def text(self, width: int | None = None) -> str:
        """The table as text, or why it has no rows."""
        return super().text(width) if self else f"No GPU: {self.why_none()}"

    def cells(self, row: GpuRow) -> list[str]:
        """A row as words."""
        return [str(row.id), row.name, row.physical, megabytes(row.memory_total), megabytes(row.memory_free)]


def seen_devices() -> str:
    """CUDA_VISIBLE_DEVICES, in words."""
    value = os.environ.get(SEEN)
    return f"{SEEN} is not set: all GPUs are seen" if value is None else f"{SEEN}={value!r}"
