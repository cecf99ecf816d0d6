"""Parse groups: the devices of each replica of a template that has parts, one device for each part."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse

Group: TypeAlias = tuple[str, ...]
Gpus: TypeAlias = int | Sequence[int | str] | Sequence[Sequence[int | str]] | None  # as in `multi_gpu_model`

HOST = "CPU:0"
MOST_GROUPS = 1024  # more slices than a pipeline gains from: a longer list is a typing error
EXAMPLE = "`gpus=[['GPU:0', 'GPU:1'], ['GPU:2', 'GPU:3']]`"


def has_groups(gpus: object) -> bool:
    """Return whether `gpus` names groups: a list of lists."""
    return is_list(gpus) and any(map(is_list, itertools.islice(gpus, MOST_GROUPS)))  # type: ignore[call-overload]


def make_groups(gpus: object, parts: Sequence[str], named: Callable[[object], list[str]]) -> tuple[Group, ...]:
    """Return the groups that `gpus` names.

    Args:
        gpus: as in `multi_gpu_model`.
        parts: the devices of the template, in the order in which they were named. Empty if it has no parts.
        named: a function that returns the names of the devices in one group.

    Raises:
        ValueError: the template has no parts; an entry is not a group; there are too many groups; the length of a group
            is not the number of the template's devices; or different groups share devices.
    """
    entries = list(itertools.islice(gpus, MOST_GROUPS + 1))  # type: ignore[call-overload]
    _check_entries(entries, gpus)
    if not parts:
        raise refuse(
            "a template with parts on devices, because `gpus` lists groups of devices",
            f"gpus={shown(gpus)}, and a template without parts",
            "Call its layers in a scope of `multigpu.on_device(device)`, or list single devices, as in "
            "`gpus=['GPU:0', 'GPU:1']`.",
        )
    groups = tuple(tuple(named(entry)) for entry in entries)
    _check_lengths(groups, parts, gpus)
    _check_apart(groups, gpus)
    return groups


def parts_in_groups(parts: Sequence[str], groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the parts that a group replaces: all, or if it names one device less, all but the part on the host."""
    return tuple(part for part in parts if not groups or len(groups[0]) == len(parts) or part != HOST)


def _check_entries(entries: Sequence[object], gpus: object) -> None:
    if len(entries) > MOST_GROUPS:
        raise refuse(
            f"at most {MOST_GROUPS:,} groups in `gpus`",
            f"gpus={shown(gpus)}",
            "List a group once for each slice that it processes, 4 to 8 times for two parts.",
        )
    for entry in entries:
        if not is_list(entry):
            raise refuse(
                "`gpus` to list groups only, or single devices only",
                f"{shown(entry)} of type {type(entry).__name__} in gpus={shown(gpus)}",
                f"Use {EXAMPLE}.",
            )


def _check_lengths(groups: Sequence[Group], parts: Sequence[str], gpus: object) -> None:
    lengths = {len(parts), len(parts) - (HOST in parts and len(parts) > 1)}
    for group in groups:
        if len(group) not in lengths or len(group) != len(groups[0]):
            raise refuse(
                f"{len(parts)} devices in each group, since the template has parts on "
                f"{', '.join(parts)}{', or one less, without the host' if len(lengths) > 1 else ''}",
                f"{len(group)} in the group {list(group)} of gpus={shown(gpus)}",
            )


def _check_apart(groups: Sequence[Group], gpus: object) -> None:
    """Raise a ValueError if different groups share a device: a device holds one part."""
    for group in groups:
        if len(set(group)) < len(group):
            raise refuse(
                "each device once in a group",
                f"{list(group)} in gpus={shown(gpus)}",
                "Put both parts on one device in the template.",
            )
    for one, another in itertools.combinations(dict.fromkeys(groups), 2):
        if set(one) & set(another):
            raise refuse(
                "two groups to be the same, one slice behind the other, or to have no device in common",
                f"{list(one)} and {list(another)} in gpus={shown(gpus)}",
                "A device holds one part of the template.",
            )


def is_list(value: object) -> bool:
    """Return whether a value is a list of entries. A device of TensorFlow, which is a tuple of texts, is one entry."""
    one = isinstance(value, str | bytes | bytearray | memoryview) or hasattr(value, "device_type")
    return isinstance(value, Sequence) and not one
