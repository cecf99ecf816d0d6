"""Names of devices, as people and TensorFlow write them, and the short ones that this package uses."""

import functools
import re

MOST_DEVICES = 1024  # more than any machine has: a larger number is a slip, and a list of so many would take for ever
HERE = "/job:localhost/replica:0/task:0"  # a process that trains alone
NAME = re.compile(
    r"(?P<task>(/job:\w+)?(/replica:\d+)?(/task:\d+)?)"
    r"/(device:(?P<any>[A-Za-z_]+)|(?P<kind>[cgtCGT][pP][uU]))(:(?P<number>\d+))?"
)


@functools.lru_cache(4096)  # a step that is traced asks for the device of each op
def short_name(device: str, here: str = HERE) -> str:
    """`"/job:localhost/replica:0/task:0/device:GPU:1"` → `"GPU:1"`; `"/gpu:1"` → `"GPU:1"`; `"GPU"` → `"GPU:0"`.

    Args:
        device: the name.
        here: the task that this process is, as TensorFlow names it.

    Raises:
        ValueError: the name means no one device of this process.
    """
    name = str(device)
    found = NAME.fullmatch(name if name.startswith("/") else f"/{name}")
    if found is None:
        raise ValueError(f"not the name of a device: {device!r}")
    if not any(_is_part(found["task"], of) for of in (HERE, here)):
        raise ValueError(f"not the name of a device of this machine: {device!r}")
    return f"{(found['any'] or found['kind']).upper()}:{int(found['number'] or 0)}"


def _is_part(task: str, whole: str) -> bool:
    """Return whether what is said of a task, which may be nothing, is so of the whole name."""
    return set(task.split("/")) <= set(whole.split("/"))


def stand_in(name: str, gpus: list[str]) -> str:
    """The simulated device that answers to the name of a GPU, or the name itself.

    Args:
        name: short name of a device.
        gpus: the devices that `gpus` counts; one CPU alone stands in for nothing.
    """
    kind, number = name.split(":")
    simulated = f"CPU:{number}"
    return simulated if kind == "GPU" and len(gpus) > 1 and simulated in gpus else name
