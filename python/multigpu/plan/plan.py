"""The plan: which devices run replicas, and where their outputs are merged."""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from multigpu.base.arguments import check_flags, shown, whole_number
from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster
from multigpu.plan.device_names import HERE, MOST_DEVICES, short_name, stand_in
from multigpu.plan.groups import Group, has_groups, is_list, make_groups, parts_in_groups

MOST_ROWS = 2**31 - 1  # of a batch: the size of its tensors must fit into 64 bits
OWN_MEMORY = ("GPU",)  # types of devices that need copies of rows

TOO_FEW = (
    "For multi-gpu usage to be effective, call `multi_gpu_model` with `{what} >= {least}`. Received: "
    "gpus={gpus}{found}."
)
ALL = " Use `gpus=None` for all GPUs."
WITH_ONE = (
    " With one GPU, train the model itself; a script that also runs with several can catch `multigpu.TooFewGPUsError`."
)
SIMULATE = (
    " This machine has no GPU that Keras can use; to try a script without GPUs, call `multigpu.simulate_gpus(2)` first."
)


class TooFewGPUsError(ValueError):
    """`gpus` means fewer than two devices, or more than exist. Catch it in scripts that also run on one GPU.

    Example:
        >>> import keras, multigpu
        >>> multigpu.simulate_gpus(2)
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> try:
        ...     parallel = multigpu.multi_gpu_model(model, gpus=8)
        ... except multigpu.TooFewGPUsError:
        ...     parallel = model
    """


@dataclass(frozen=True, repr=False)
class Plan:
    """Where a parallel model runs: one replica on each of `devices`, outputs and loss on `merge_device`.

    Attributes:
        devices: names of the replicas' devices, such as `("GPU:0", "GPU:1")`. With groups, each device occurs once.
        merge_device: name of the device where outputs are merged and the loss is computed.
        cpu_relocation: whether the CPU owns all weights.
        cluster: the workers, including this process, or None if it trains alone.
        groups: the devices of each replica of a template with parts, one for each part. Empty for other templates.
        parts: the devices that such a template names. The devices of each group replace them.
    """

    devices: tuple[str, ...]
    merge_device: str
    cpu_relocation: bool = False
    cluster: Cluster | None = None
    groups: tuple[Group, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def replicas(self) -> tuple[Group, ...]:
        """The devices of each replica: one, or as many as the template has parts."""
        return self.groups or tuple((device,) for device in self.devices)

    def slices_on(self, device: str) -> list[int]:
        """Return the numbers of the replicas that run on a device, or have a part there."""
        return [number for number, group in enumerate(self.replicas) if device in group]

    def rows(self, batch_size: int) -> tuple[int, ...]:
        """Return how many rows of a batch each replica gets. The numbers differ by at most one."""
        share, rest = divmod(batch_size, len(self.replicas))
        return tuple(share + (replica < rest) for replica in range(len(self.replicas)))

    @property
    def sends_ahead(self) -> bool:
        """Whether rows of the next batch are sent to the devices during a step. Workers and groups do not."""
        copied = any(device.startswith(OWN_MEMORY) for device in self.devices)
        return copied and len(self.devices) > 1 and self.cluster is None and not self.groups

    def __str__(self) -> str:
        return self.told(["CPU:0"] if self.cpu_relocation else self.devices)

    def told(self, holders: Collection[str]) -> str:
        """The plan in one line, with the devices that hold weights: others than planned after `bring_home()`."""
        weights = f"weights on {next(iter(holders))}" if len(holders) == 1 else "weights spread over the devices"
        times = Counter(self.replicas)
        where = [" + ".join(group) + (f" ({times[group]} times)" if times[group] > 1 else "") for group in times]
        replicas = f"{len(self.replicas)} replica{'s' * (len(self.replicas) > 1)} on {', '.join(where)}"
        here = f"; {self.cluster}" if self.cluster else ""
        return f"{replicas}; outputs merged on {self.merge_device}; {weights}{here}"

    def __repr__(self) -> str:
        return f"<Plan: {self}>"


def make_plan(
    gpus: object,
    cpu_merge: bool,
    cpu_relocation: bool,
    visible: dict[str, list[str]],
    cluster: Cluster | None = None,
    imagined: bool = False,
    parts: Sequence[str] = (),
) -> Plan:
    """Return the plan for `gpus`, as a pure function of the arguments and the visible devices.

    Args:
        gpus: as in `multi_gpu_model`.
        cpu_merge: as in `multi_gpu_model`.
        cpu_relocation: as in `multi_gpu_model`.
        visible: the devices of this machine.
        cluster: the workers, if several train together. Then one device each is enough.
        imagined: whether the devices may be missing on this machine. Then one device is enough.
        parts: the devices of a template with parts, in the order in which they were named.
    """
    check_flags(cpu_merge=cpu_merge, cpu_relocation=cpu_relocation)
    found, here = visible["gpus"], cluster.tasks[cluster.number] if cluster else HERE
    groups: tuple[Group, ...] = ()
    if has_groups(gpus):
        groups = make_groups(gpus, parts, lambda group: _named(group, found, here))
    wanted = [*dict.fromkeys(itertools.chain(*groups))] or (found if gpus is None else _named(gpus, found, here))
    _check_number(wanted, gpus, found, least=1 if cluster or imagined or groups else 2)
    _check_distinct(wanted, gpus)
    if not imagined:
        _check_present(wanted, visible)
    return Plan(
        devices=tuple(wanted),
        merge_device="CPU:0" if cpu_merge else wanted[0],
        cpu_relocation=bool(cpu_relocation),
        cluster=cluster,
        groups=groups,
        parts=parts_in_groups(parts, groups),
    )


def _named(gpus: object, found: list[str], here: str) -> list[str]:
    """Return the names of the devices that a number or a list means."""
    if is_list(gpus):
        entries = list(itertools.islice(gpus, MOST_DEVICES + 1))  # type: ignore[call-overload]  # any `len()`
        _check_few(len(entries), gpus)
        return [_device(entry, gpus, found, here) for entry in entries]
    number = _number(gpus, gpus)
    _check_few(number, gpus)
    return [f"{_kind(found)}:{index}" for index in range(number)]


def _device(entry: object, gpus: object, found: list[str], here: str) -> str:
    """Return the device that one entry of a list means. An id counts GPUs, real or simulated, from 0."""
    name = getattr(entry, "name", None) if hasattr(entry, "device_type") else entry  # of a device of TensorFlow
    if not isinstance(name, str):
        return f"{_kind(found)}:{_number(entry, gpus)}"
    try:
        return stand_in(short_name(name, here), found)
    except ValueError as error:
        raise _not_understood(entry, gpus) from error


def _kind(found: list[str]) -> str:
    return found[0].split(":")[0] if found else "GPU"


def _number(entry: object, gpus: object) -> int:
    number = whole_number(entry)
    if number is None:
        raise _not_understood(entry, gpus)
    if number < 0:
        raise refuse(
            "GPU numbers of 0 or more in `gpus`",
            f"{shown(number)} in gpus={shown(gpus)}",
            "Ids count from 0, as in `gpus=[0, 1]`.",
        )
    return number


def _check_few(number: int, gpus: object) -> None:
    if number > MOST_DEVICES:
        raise refuse(
            f"`gpus` to be at most {MOST_DEVICES:,} devices",
            f"gpus={shown(gpus)}",
            "Use `gpus=None` for all GPUs of this machine.",
        )


def _not_understood(entry: object, gpus: object) -> ValueError:
    return refuse(
        "`gpus` to be None, a whole number of GPUs, or a list of GPU ids or device names",
        f"{shown(entry)} of type {type(entry).__name__} in gpus={shown(gpus)}",
        "Use `gpus=2`, `gpus=[0, 1]` or `gpus=['GPU:0', 'GPU:1']`.",
    )


def _check_number(wanted: Sequence[str], gpus: object, found: list[str], least: int) -> None:
    if len(wanted) >= least:
        return
    what = "gpus" if gpus is None or whole_number(gpus) is not None else "len(gpus)"
    counted = f", and {len(found)} found" if gpus is None else ""
    message = TOO_FEW.format(what=what, least=least, gpus=shown(gpus), found=counted)
    use = WITH_ONE if wanted or gpus is None else ALL
    raise TooFewGPUsError(message + use + ("" if found else SIMULATE))


def _check_distinct(wanted: Sequence[str], gpus: object) -> None:
    twice = sorted(device for device, times in Counter(wanted).items() if times > 1)
    if twice:
        raise refuse(
            "each device once in `gpus`",
            f"gpus={shown(gpus)}, with {', '.join(twice)} more than once",
            "Name each GPU once: a second replica on one GPU would only slow it down.",
        )


def _check_present(wanted: Sequence[str], visible: dict[str, list[str]]) -> None:
    present = visible["gpus"] + [name for name in visible["others"] if name not in visible["gpus"]]
    if len(wanted) <= len(present) and set(wanted) <= set(present):
        return
    expected = str(list(wanted)) if len(wanted) <= 16 else f"{wanted[0]!r} to {wanted[-1]!r}, {len(wanted)} in all"
    use = "Try reducing `gpus`." if len(wanted) > len(visible["gpus"]) else "Name some of these; ids count from 0."
    raise TooFewGPUsError(
        f"To call `multi_gpu_model` with these `gpus`, we expect the following devices to be available: {expected}. "
        f"However this machine only has: {present}. {use}" + ("" if visible["gpus"] else SIMULATE)
    )
