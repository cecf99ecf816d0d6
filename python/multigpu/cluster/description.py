"""The cluster as it is described to this process in TF_CONFIG, read once."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multigpu.cluster.addresses import EXPECTED, is_address, repeated

ANSWER_SECONDS = 30.0  # a worker that does not answer for so long counts as lost
ARRIVE_SECONDS = 600.0  # one that answers, but does not come to where the others wait, ends the wait after this
MOST_SECONDS = 1e6
JOBS = ("chief", "worker", "evaluator")
MAY_BE_ALONE = {"cluster", "environment", "job", "task"}  # what a cloud tells a process that is alone
EXAMPLE = (
    'for instance TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}\''
)


@dataclass(frozen=True)
class Cluster:
    """The workers that train together, in the order that all of them know.

    Attributes:
        tasks: TensorFlow's names of the workers, such as `"/job:worker/replica:0/task:0"`; the first is the chief.
        addresses: where they listen, as `"host:port"`.
        number: which of them this process is.
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
        """How many workers there are."""
        return len(self.tasks)

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers."""
        return [number for number in range(self.size) if number != self.number]

    @property
    def op_seconds(self) -> float:
        """The limit of a sum itself, the last resort: before it, who is absent or lost has been found out."""
        return self.arrive_seconds + 2 * self.answer_seconds

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that prints and writes files, and whose weights all begin with."""
        return self.number == 0

    def name(self, number: int) -> str:
        """A worker as messages call it."""
        return f"worker {number} at {self.addresses[number]}"

    def __str__(self) -> str:
        return f"worker {self.number} of {self.size}"


def described(environ: Mapping[str, str], known_as: str = "TF_CONFIG") -> Cluster | None:
    """The cluster that TF_CONFIG describes, or None where there is none, or but one worker, or this is an evaluator.

    Args:
        environ: the environment, with TF_CONFIG.
        known_as: what messages call TF_CONFIG, where it was made of something else.

    Raises:
        ValueError: TF_CONFIG is not understood. The message says what was expected, what was received, what to do.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        members, number = _members(_parsed(text))
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


def _parsed(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"which is no JSON ({error})") from error
    return _table(config, "which")


def _members(config: dict[str, Any]) -> tuple[list[tuple[str, int, str]], int | None]:
    """All workers, as job, task and address, the chief first; and which of them this is, None for another process."""
    jobs, task = _table(config.get("cluster", {}), "whose `cluster`"), _table(config.get("task", {}), "whose `task`")
    if not jobs and (task or not config.keys() <= MAY_BE_ALONE):
        raise ValueError("without workers in `cluster`")
    for job, addresses in jobs.items():
        _check_job(job, addresses)
    members = [(job, number, address) for job in JOBS[:2] for number, address in enumerate(jobs.get(job, []))]
    if twice := repeated([address for _, _, address in members]):
        raise ValueError(f"with an address twice, {twice[0]}")
    if not jobs or task.get("type") == "evaluator":
        return members, None
    this = task.get("type"), _index(task)
    if this not in [(job, number) for job, number, _ in members]:
        raise ValueError(f"where the task {this[0]!r} {this[1]} is none of the cluster's")
    return members, [(job, number) for job, number, _ in members].index(this)


def _check_job(job: str, addresses: Any) -> None:
    if job == "ps":
        raise ValueError("with parameter servers (`ps`)")
    if job not in JOBS:
        raise ValueError(f"with {_shown(job)} in `cluster`, rather than chief, worker or evaluator")
    if not isinstance(addresses, list):
        raise ValueError(f"whose `{job}` is {_shown(addresses)}, rather than a list of addresses")
    for address in addresses:
        if not is_address(address):
            raise ValueError(f"with the address {_shown(address)}, rather than {EXPECTED}")
    if job == "chief" and len(addresses) > 1:
        raise ValueError(f"with {len(addresses)} chiefs, rather than one")


def _index(task: Mapping[str, Any]) -> int:
    index = task.get("index")
    if isinstance(index, str) and re.fullmatch("[0-9]{1,9}", index):  # TensorFlow takes it, too
        return int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        received = _shown(index) if "index" in task else "missing"
        raise ValueError(f"where `index` of the task is {received}, rather than a whole number from 0")
    return index


def _table(value: Any, which: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{which} is {_shown(value)}, rather than a table in braces")
    return value


def _shown(value: Any) -> str:
    """A value as JSON has it, cut where it is long."""
    return _cut(json.dumps(value), 60)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def configs(addresses: Sequence[str]) -> list[str]:
    """A TF_CONFIG for each of the workers that listen at these addresses."""
    cluster = {"worker": list(addresses)}
    return [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(len(addresses))
    ]


def jobs_of(cluster: Cluster) -> dict[str, list[str]]:
    """Addresses by job, as TensorFlow takes them: the inverse of what `described()` does."""
    jobs: dict[str, Any] = {}
    for task, address in zip(cluster.tasks, cluster.addresses, strict=True):
        jobs.setdefault(task.split("/")[1].removeprefix("job:"), []).append(address)
    return jobs


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(environ.get(name) or default)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MOST_SECONDS:  # nor is it NaN
        raise ValueError(
            f"Expected {name} to be a number of seconds above 0, and {MOST_SECONDS:g} at most. "
            f"Received: {environ[name]!r}. Leave it out for {default:g} seconds."
        )
    return seconds


def _not_understood(what: str, text: str, known_as: str) -> ValueError:
    expected = "the workers of a cluster, as a chief and workers or as workers alone, and which of them this process is"
    if known_as != "TF_CONFIG":
        return ValueError(f"Expected {known_as} to name {expected}. Received: {_cut(text, 400)}, {what}. Correct it.")
    return ValueError(
        f"Expected TF_CONFIG to name {expected}, {EXAMPLE}. Received: TF_CONFIG={_cut(repr(text), 400)}, {what}. "
        "Correct it, or unset TF_CONFIG to train on this machine alone."
    )
