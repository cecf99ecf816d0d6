"""The cluster that TF_CONFIG describes to this process, read once."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multigpu.base.refusal import refuse
from multigpu.cluster.tf_config import cut, members_of

ANSWER_SECONDS = 30.0  # a worker that does not answer for this time counts as lost
ARRIVE_SECONDS = 600.0  # how long to wait for a worker that answers but has not reached the current step
MOST_SECONDS = 1e6
IMPORT = "Import multigpu, with TF_CONFIG set,"
EXAMPLE = (
    'for instance TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}\''
)


@dataclass(frozen=True)
class Cluster:
    """The workers that train together, in an order that all of them know.

    Attributes:
        tasks: TensorFlow's names of the workers, such as `"/job:worker/replica:0/task:0"`; the first is the chief.
        addresses: the addresses where they listen, as `"host:port"`.
        number: the number of this process among them.
        answer_seconds: how long a worker may be silent before it counts as lost.
        arrive_seconds: how long the others wait for a worker that is not lost.
    """

    tasks: tuple[str, ...]
    addresses: tuple[str, ...]
    number: int
    answer_seconds: float = ANSWER_SECONDS
    arrive_seconds: float = ARRIVE_SECONDS

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.tasks)

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers."""
        return [number for number in range(self.size) if number != self.number]

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that prints and writes files, and whose weights all begin with."""
        return self.number == 0

    def name(self, number: int) -> str:
        """The name of a worker in messages."""
        return f"worker {number} at {self.addresses[number]}"

    def __str__(self) -> str:
        return f"worker {self.number} of {self.size}"


def described(environ: Mapping[str, str], known_as: str = "TF_CONFIG") -> Cluster | None:
    """Return the cluster of TF_CONFIG. None if there is none, if it has one worker, or if this is an evaluator.

    Args:
        environ: the environment, with TF_CONFIG.
        known_as: the name of TF_CONFIG in messages, if it was made from something else.

    Raises:
        ValueError: TF_CONFIG is not understood. The message gives the expected and the received value, and what to do.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        members, number = members_of(text)
    except ValueError as error:
        raise _not_understood(str(error), text, known_as) from error
    if number is None or len(members) < 2:
        return None
    return Cluster(
        tasks=tuple(f"/job:{job}/replica:0/task:{task}" for job, task, _ in members),
        addresses=tuple(address for _, _, address in members),
        number=number,
        answer_seconds=_seconds(environ, "MULTIGPU_ANSWER_SECONDS", ANSWER_SECONDS),
        arrive_seconds=_seconds(environ, "MULTIGPU_ARRIVE_SECONDS", ARRIVE_SECONDS),
    )


def understood(environ: Mapping[str, str]) -> Cluster | None:
    """Return the same, or None if it is not understood: making a model raises that error; all else needs no cluster."""
    with contextlib.suppress(ValueError):
        return described(environ)
    return None


def too_late(cluster: Cluster, engine: str, known: str = "TF_CONFIG describes", cure: str = IMPORT) -> ValueError:
    """Return the error for a cluster that this process can no longer join."""
    return refuse(
        f"to join before {engine} uses a device, since {known} {cluster.size} workers: it connects when it starts",
        f"{engine} started first, on {cluster}",
        f"{cure} at the top of the script.",
    )


def configs(addresses: Sequence[str]) -> list[str]:
    """Return a TF_CONFIG for each of the workers that listen at these addresses."""
    cluster = {"worker": list(addresses)}
    return [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(len(addresses))
    ]


def jobs_of(cluster: Cluster) -> dict[str, list[str]]:
    """Return the addresses by job, as TensorFlow expects them: the inverse of `described()`."""
    jobs: dict[str, Any] = {}
    for task, address in zip(cluster.tasks, cluster.addresses, strict=True):
        jobs.setdefault(task.split("/")[1].removeprefix("job:"), []).append(address)
    return jobs


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(environ.get(name) or default)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MOST_SECONDS:  # and it is not NaN
        raise refuse(
            f"{name} to be a number of seconds above 0, and {MOST_SECONDS:g} at most",
            f"{environ[name]!r}",
            f"Unset it to use the default, {default:g} seconds.",
        )
    return seconds


def _not_understood(what: str, text: str, known_as: str) -> ValueError:
    expected = "the workers of a cluster, as a chief and workers or as workers alone, and which of them this process is"
    if known_as != "TF_CONFIG":
        return refuse(f"{known_as} to name {expected}", f"{cut(text, 400)}, {what}", "Correct it.")
    return refuse(
        f"TF_CONFIG to name {expected}, {EXAMPLE}",
        f"TF_CONFIG={cut(repr(text), 400)}, {what}",
        "Correct it, or unset TF_CONFIG to train on this machine alone.",
    )
