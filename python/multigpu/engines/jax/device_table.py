"""List the devices of JAX in a table, or the reason why there are no GPUs."""

from typing import Any

from multigpu.engines.jax.devices import device_named, visible_devices
from multigpu.plan.gpu_table import GpuRow, GpuTable, why_hidden


def device_table(start: bool = False) -> GpuTable:
    """Return the devices that `gpus` counts. This starts JAX, whatever `start` is."""
    table = GpuTable(_row(number, name) for number, name in enumerate(visible_devices()["gpus"]))
    table.why_none = why_no_gpu
    return table


def why_no_gpu() -> str:
    """Return the reason why JAX finds no GPU, and what to do."""
    return why_hidden() or (
        "JAX finds none. With an NVIDIA driver, run `pip install 'jax[cuda12]'`; to try a script without "
        "GPUs, call `multigpu.simulate_gpus(2)` right after the imports, in a fresh process."
    )


def _row(number: int, name: str) -> GpuRow:
    device = device_named(name)
    memory: dict[str, Any] = device.memory_stats() or {}  # CPUs have no statistics
    total = memory.get("bytes_limit")
    free = None if total is None else total - memory.get("bytes_in_use", 0)
    return GpuRow(number, name, f"{name}, {device.device_kind}", total, free)
