"""Devices of JAX: their names, the mesh of the used devices, and simulated GPUs."""

import contextlib
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from multigpu.plan.device_names import present_name, short_name, started_before


def visible_devices(one_is_enough: bool = False) -> dict[str, list[str]]:
    """Return the names of this process's devices by role: those that `gpus` counts, and `others` for other uses.

    Args:
        one_is_enough: whether a single CPU counts, as it does if several machines train together.
    """
    found, cpus = jax.local_devices(), jax.local_devices(backend="cpu")
    if len(cpus) > len(found):
        found = cpus  # made intentionally, on a machine with fewer GPUs
    others = list(dict.fromkeys(_names(found) + _names(jax.local_devices()) + _names(cpus)))
    is_cpu_itself = found == cpus[:1]
    return {"gpus": [] if is_cpu_itself and not one_is_enough else _names(found), "others": others}


def _names(devices: list[jax.Device]) -> list[str]:
    kinds = [device.platform.upper() for device in devices]
    return [f"{kind}:{kinds[:number].count(kind)}" for number, kind in enumerate(kinds)]


def present_device(device: object, cure: str) -> str:
    """Return the short name of an existing device, or raise a ValueError for `device` that ends in a remedy."""
    return present_name(device, cure, visible_devices(), short_name)


def device_named(name: str, process: int | None = None) -> jax.Device:
    """Return the device with a name such as `"GPU:1"` in this process, or in another one."""
    kind, number = name.split(":")
    here = jax.process_index(backend=kind.lower()) if process is None else process
    return [device for device in jax.devices(kind.lower()) if device.process_index == here][int(number)]


def make_mesh(names: Sequence[str], processes: Sequence[int]) -> Mesh:
    """Return a mesh of the devices with these names, of one or several processes.

    It has one axis for each prime factor of their number: some devices may divide an array that all of them do not.
    """
    devices = [device_named(name, process) for process in processes for name in names]
    factors = [*prime_factors(len(processes)), *(prime_factors(len(names)) or [1])]
    # numbered from the end: axes of this worker's devices have the same names among those of all
    return Mesh(np.array(devices).reshape(factors), tuple(f"gpus{n}" for n in reversed(range(len(factors)))))


def prime_factors(number: int) -> list[int]:
    """Return the prime factors of a number: `12` → `[2, 2, 3]`."""
    divisors = (divisor for divisor in range(2, math.isqrt(number) + 1) if number % divisor == 0)
    first = next(divisors, number)
    return [first, *prime_factors(number // first)] if number > 1 else []


def host() -> jax.Device:
    """Return the CPU, on which waiting arrays are kept."""
    return jax.local_devices(backend="cpu")[0]


def hide_gpus(number: int) -> None:
    """Hide the GPUs of this machine, which may be in use, and simulate `number` of them, unless JAX has started."""
    jax.config.update("jax_platforms", "cpu")
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", number)


def simulate(n: int, memory_limit: int) -> None:
    """Make JAX start with `n` CPU devices that simulate GPUs, unless there are so many GPUs.

    Raises:
        RuntimeError: JAX has started with other devices, which cannot be changed.
    """
    del memory_limit  # for a GPU that is split, which JAX cannot do
    try:
        jax.config.update("jax_num_cpu_devices", n)
    except RuntimeError as error:
        devices = _names(jax.local_devices())
        if len(devices) >= n > 1:
            return
        raise started_before(n, "JAX", devices) from error
