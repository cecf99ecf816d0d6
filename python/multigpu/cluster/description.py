"""The cluster as it is described to this process in TF_CONFIG, read once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ANSWER_SECONDS = 30.0  # a worker that does not answer for so long counts as lost
ARRIVE_SECONDS = 600.0  # one that answers, but does not come to where the others wait, ends the wait after this
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


def described(environ: Mapping[str, str]) -> Cluster | None:
    """The cluster that TF_CONFIG describes, or None where there is none, or but one worker, or this is an evaluator.

    Raises:
        ValueError: TF_CONFIG is not understood. The message says what was expected, what was received, what to do.
    """
    text = environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
        jobs = {job: list(addresses) for job, addresses in config.get("cluster", {}).items()}
        kind, index = config.get("task", {}).get("type"), int(config.get("task", {}).get("index", 0))
    except (ValueError, TypeError, AttributeError) as error:
        raise _not_understood(f"which is not understood ({error})", text) from error
    if "ps" in jobs:
        raise _not_understood("with parameter servers (`ps`)", text)
    members = [(job, task, address) for job in ("chief", "worker") for task, address in enumerate(jobs.get(job, []))]
    if kind == "evaluator" or len(members) < 2:
        return None
    if (kind, index) not in [(job, task) for job, task, _ in members]:
        raise _not_understood(f"where the task {kind!r} {index} is none of the cluster's", text)
    if len({address for _, _, address in members}) < len(members):
        raise _not_understood("with an address twice", text)
    return Cluster(
        tasks=tuple(f"/job:{job}/replica:0/task:{task}" for job, task, _ in members),
        addresses=tuple(str(address) for _, _, address in members),
        number=[(job, task) for job, task, _ in members].index((kind, index)),
        answer_seconds=_seconds(environ, "MULTIGPU_ANSWER_SECONDS", ANSWER_SECONDS),
        arrive_seconds=_seconds(environ, "MULTIGPU_ARRIVE_SECONDS", ARRIVE_SECONDS),
    )


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
    if seconds <= 0:
        raise ValueError(
            f"Expected {name} to be a number of seconds above 0. Received: {environ[name]!r}. "
            f"Leave it out for {default:g} seconds."
        )
    return seconds


def _not_understood(what: str, text: str) -> ValueError:
    return ValueError(
        "Expected TF_CONFIG to name the workers of a cluster, as a chief and workers or as workers alone, and which of "
        f"them this process is, {EXAMPLE}. Received: TF_CONFIG={text!r}, {what}. Correct it, or unset TF_CONFIG to "
        "train on this machine alone."
    )
