"""Devices of JAX: their names, the mesh of those at work, and stand-ins for GPUs that are not there."""

import jax
import numpy as np
from jax.sharding import Mesh

STARTED = (
    "Expected `simulate_gpus()` to be called before JAX uses a device: JAX fixes its devices at first use. Received "
    "simulate_gpus({n}) after JAX had started with {devices}. Call `multigpu.simulate_gpus({n})` right after the "
    "imports, in a fresh process (in a notebook: restart the kernel)."
)


def accelerators() -> list[jax.Device]:
    """The devices that a number of GPUs counts: those of JAX's default platform in this process."""
    return jax.local_devices()


def host() -> jax.Device:
    """The CPU, where what waits for its turn is kept."""
    return jax.local_devices(backend="cpu")[0]


def name_of(device: jax.Device) -> str:
    """`"GPU:1"`: the second device of its platform in this process."""
    same = jax.local_devices(backend=device.platform)
    return f"{device.platform.upper()}:{same.index(device)}"


def visible_devices() -> dict[str, list[str]]:
    """Names of all devices by role: `gpus` counts and ids, `others` that can be asked for by name.

    One CPU alone is the CPU; several were made on purpose.
    """
    found = [name_of(device) for device in accelerators()]
    cpus = [name_of(device) for device in jax.local_devices(backend="cpu")]
    return {"gpus": found if found != ["CPU:0"] else [], "others": list(dict.fromkeys(found + cpus))}


def device_named(name: str) -> jax.Device:
    """The device of a name such as `"GPU:1"`."""
    platform, number = name.lower().split(":")
    return jax.local_devices(backend=platform)[int(number)]


def make_mesh(devices: list[jax.Device]) -> Mesh:
    """The devices, with one axis for each prime factor of their number: what all do not divide, some may."""
    factors = prime_factors(len(devices))
    return Mesh(np.array(devices).reshape(factors), tuple(f"gpus{number}" for number in range(len(factors))))


def prime_factors(number: int) -> list[int]:
    """`12` → `[2, 2, 3]`."""
    factor = next((factor for factor in range(2, number + 1) if number % factor == 0), None)
    return [factor, *prime_factors(number // factor)] if factor else []


def simulate(n: int) -> None:
    """Makes JAX start with `n` CPU devices, which stand in for GPUs, unless there are so many GPUs.

    Raises:
        RuntimeError: JAX has started, so its devices are fixed.
    """
    try:
        jax.config.update("jax_num_cpu_devices", n)
    except RuntimeError as error:
        devices = ", ".join(name_of(device) for device in accelerators())
        raise RuntimeError(STARTED.format(n=n, devices=devices)) from error
