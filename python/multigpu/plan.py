"""What the user asked for, read once: which devices run replicas, and where their outputs are merged."""

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multigpu.cluster.description import Cluster
from multigpu.devices import short_name

TOO_FEW = (
    "For multi-gpu usage to be effective, call `multi_gpu_model` with `{what} >= 2`. Received: gpus={gpus!r}{found}."
)
SIMULATE = (
    " This machine has no GPU that TensorFlow can use; to try a script without GPUs, call `multigpu.simulate_gpus(2)` "
    "first."
)


@dataclass(frozen=True)
class Plan:
    """Where a parallel model works: one replica on each of `devices`, outputs and loss on `merge_device`.

    Attributes:
        devices: names of the replicas' devices, such as `("GPU:0", "GPU:1")`.
        merge_device: name of the device where outputs are merged and the loss is taken.
        cpu_relocation: whether the CPU owns all weights.
        cluster: the workers, of which this machine is one, or None where it trains alone.
    """

    devices: tuple[str, ...]
    merge_device: str
    cpu_relocation: bool = False
    cluster: Cluster | None = None

    def rows(self, batch_size: int) -> tuple[int, ...]:
        """Rows of a batch that each replica gets: sizes differ by at most one."""
        share, rest = divmod(batch_size, len(self.devices))
        return tuple(share + (replica < rest) for replica in range(len(self.devices)))

    def __str__(self) -> str:
        weights = "weights owned by the CPU" if self.cpu_relocation else "weights spread over the devices"
        replicas = f"{len(self.devices)} replicas on {', '.join(self.devices)}"
        here = f"; {self.cluster}" if self.cluster else ""
        return f"{replicas}; outputs merged on {self.merge_device}; {weights}{here}"


def make_plan(
    gpus: object,
    cpu_merge: bool,
    cpu_relocation: bool,
    visible: dict[str, list[str]],
    cluster: Cluster | None = None,
) -> Plan:
    """The plan for `gpus`, as a pure function of the arguments and the visible devices."""
    found = visible["gpus"]
    if _is_listed(gpus):
        wanted: Sequence[str] = [_device(entry, gpus, found) for entry in gpus]  # type: ignore[attr-defined]  # a sequence
    else:
        wanted = _counted(gpus, found)
    _check_number(wanted, gpus, found, least=1 if cluster else 2)
    _check_distinct(wanted, gpus)
    _check_present(wanted, visible)
    return Plan(
        devices=tuple(wanted),
        merge_device="CPU:0" if cpu_merge else wanted[0],
        cpu_relocation=bool(cpu_relocation),
        cluster=cluster,
    )


class _Numbered(Sequence[str]):
    """The first devices of a kind, however many are asked for."""

    def __init__(self, kind: str, number: int) -> None:
        self._kind = kind
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: Any) -> Any:
        return f"{self._kind}:{range(self._number)[index]}"


def _is_listed(gpus: object) -> bool:
    return isinstance(gpus, Sequence) and not isinstance(gpus, str) and len(gpus) > 0


def _counted(gpus: object, found: list[str]) -> Sequence[str]:
    """The first `gpus` devices; all of them for None, 0 and an empty list."""
    if gpus is None or (isinstance(gpus, Sequence) and not isinstance(gpus, str)):
        return found
    return _Numbered(_kind(found), _whole_number(gpus, gpus)) or found


def _device(entry: object, gpus: object, found: list[str]) -> str:
    """The device that one entry of a list means: an id counts GPUs, real or simulated, from 0."""
    if not isinstance(entry, str):
        return f"{_kind(found)}:{_whole_number(entry, gpus)}"
    try:
        return short_name(entry)
    except ValueError as error:
        raise _not_understood(entry, gpus) from error


def _kind(found: list[str]) -> str:
    return found[0].split(":")[0] if found else "GPU"


def _whole_number(entry: object, gpus: object) -> int:
    try:
        if isinstance(entry, bool):
            raise TypeError
        number = operator.index(entry)  # type: ignore[arg-type]  # TypeError is the answer for anything else
    except TypeError as error:
        raise _not_understood(entry, gpus) from error
    if number < 0:
        raise ValueError(
            f"Expected GPU numbers of 0 or more in `gpus`. Received: {number} in gpus={gpus!r}. "
            "Ids count from 0, as in `gpus=[0, 1]`."
        )
    return number


def _not_understood(entry: object, gpus: object) -> ValueError:
    return ValueError(
        "Expected `gpus` to be None, a whole number of GPUs, or a list of GPU ids or device names. "
        f"Received: {entry!r} of type {type(entry).__name__} in gpus={gpus!r}. "
        "Use `gpus=2`, `gpus=[0, 1]` or `gpus=['GPU:0', 'GPU:1']`."
    )


def _check_number(wanted: Sequence[str], gpus: object, found: list[str], least: int) -> None:
    if len(wanted) >= least:
        return
    listed = _is_listed(gpus)
    explicit = listed or wanted is not found
    message = TOO_FEW.format(
        what="len(gpus)" if listed else "gpus", gpus=gpus, found="" if explicit else f", and {len(found)} found"
    )
    raise ValueError(message + ("" if found else SIMULATE))


def _check_distinct(wanted: Sequence[str], gpus: object) -> None:
    if isinstance(wanted, _Numbered):
        return
    twice = sorted(device for device, times in Counter(wanted).items() if times > 1)
    if twice:
        raise ValueError(
            f"Expected each device once in `gpus`. Received: gpus={gpus!r}, with {', '.join(twice)} more than once. "
            "Name each GPU once: a second replica on one GPU would only slow it down."
        )


def _check_present(wanted: Sequence[str], visible: dict[str, list[str]]) -> None:
    present = visible["gpus"] + [name for name in visible["others"] if name not in visible["gpus"]]
    if len(wanted) <= len(present) and set(wanted) <= set(present):
        return
    expected = str(list(wanted)) if len(wanted) <= 16 else f"{wanted[0]!r} to {wanted[-1]!r}, {len(wanted)} in all"
    raise ValueError(
        f"To call `multi_gpu_model` with these `gpus`, we expect the following devices to be available: {expected}. "
        f"However this machine only has: {present}. Try reducing `gpus`." + ("" if visible["gpus"] else SIMULATE)
    )
