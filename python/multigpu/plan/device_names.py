"""Convert device names between the forms of people, of TensorFlow, and of this package."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse

MOST_DEVICES = 1024  # more than any machine has: a larger number is a typing error, and its list would take too long
HERE = "/job:localhost/replica:0/task:0"  # a process that trains alone
NAME = re.compile(
    r"(?P<task>(/job:\w+)?(/replica:\d+)?(/task:\d+)?)"
    r"/(device:(?P<any>[A-Za-z_]+)|(?P<kind>[cgtCGT][pP][uU]))(:(?P<number>\d+))?"
)


@functools.lru_cache(4096)  # tracing a step looks up the device of each op
def short_name(device: str, here: str = HERE) -> str:
    """Return the short name of a device: `"/job:localhost/…/device:GPU:1"` → `"GPU:1"`, `"GPU"` → `"GPU:0"`.

    Args:
        device: the name.
        here: this process's task, as TensorFlow names it.

    Raises:
        ValueError: the name does not mean exactly one device of this process.
    """
    name = str(device)
    found = NAME.fullmatch(name if name.startswith("/") else f"/{name}")
    if found is None:
        raise ValueError(f"not the name of a device: {device!r}")
    if not any(_is_part(found["task"], of) for of in (HERE, here)):
        raise ValueError(f"not the name of a device of this machine: {device!r}")
    return f"{(found['any'] or found['kind']).upper()}:{int(found['number'] or 0)}"


def _is_part(task: str, whole: str) -> bool:
    """Return whether the task in a name, which may be absent, agrees with the full name."""
    return set(task.split("/")) <= set(whole.split("/"))


def stand_in(name: str, gpus: list[str]) -> str:
    """Return the simulated device that has the name of a GPU, or the name itself.

    Args:
        name: short name of a device.
        gpus: the devices that `gpus` counts. A single CPU does not simulate a GPU.
    """
    kind, number = name.split(":")
    simulated = f"CPU:{number}"
    return simulated if kind == "GPU" and len(gpus) > 1 and simulated in gpus else name


def present_name(device: object, cure: str, visible: Mapping[str, list[str]], short: Callable[[str], str]) -> str:
    """Return the short name of an existing device.

    Args:
        device: the name that the user gave.
        cure: the remedy with which the error ends.
        visible: the names of devices by role: those that `gpus` counts, and `others`.
        short: converts a name to a short one, or raises a ValueError.

    Raises:
        ValueError: there is no such device.
    """
    try:
        name = stand_in(short(device), visible["gpus"]) if isinstance(device, str) else None
    except ValueError:
        name = None
    if name not in visible["others"]:
        raise refuse(f"`device` to be one of {visible['others']}", f"device={shown(device)}", cure)
    return name


def started_before(n: int, engine: str, devices: Iterable[str]) -> RuntimeError:
    """The error of `simulate_gpus(n)` where it comes too late."""
    return refuse(
        f"`simulate_gpus()` to be called before {engine} uses a device: {engine} fixes its devices at first use",
        f"simulate_gpus({n}) after {engine} had started with {', '.join(devices)}",
        f"Call `multigpu.simulate_gpus({n})` right after the imports, in a fresh process (in a notebook: restart the "
        "kernel).",
        RuntimeError,
    )
