"""Parse TF_CONFIG: the workers that it names, the number of this process, and the errors in it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from multigpu.cluster.addresses import EXPECTED, is_address, repeated

JOBS = ("chief", "worker", "evaluator")
MAY_BE_ALONE = {"cluster", "environment", "job", "task"}  # the value that a cloud sets for a process that is alone


def members_of(text: str) -> tuple[list[tuple[str, int, str]], int | None]:
    """Return all workers as (job, task, address), the chief first, and the number of this one. None for other jobs.

    Raises:
        ValueError: TF_CONFIG is not understood. The message is the end of a sentence.
    """
    try:
        return _members(_parsed(text))
    except RecursionError as error:
        raise ValueError("which is nested too deeply") from error


def _parsed(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"which is not JSON ({error})") from error
    return _table(config, "which")


def _members(config: dict[str, Any]) -> tuple[list[tuple[str, int, str]], int | None]:
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
        raise ValueError(f"where the task {this[0]!r} {this[1]} is not in the cluster")
    return members, [(job, number) for job, number, _ in members].index(this)


def _check_job(job: str, addresses: Any) -> None:
    if job == "ps":
        raise ValueError("with parameter servers (`ps`), which multigpu does not support")
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
    if isinstance(index, str) and re.fullmatch("[0-9]{1,9}", index):  # TensorFlow accepts it, too
        return int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        received = _shown(index) if "index" in task else "missing"
        raise ValueError(f"where `index` of the task is {received}, rather than a whole number from 0")
    return index


def _table(value: Any, which: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{which} is {_shown(value)}, rather than a JSON object")
    return value


def _shown(value: Any) -> str:
    """Return a value as JSON, shortened if it is long."""
    return cut(json.dumps(value), 60)


def cut(text: str, longest: int) -> str:
    """Return a text, shortened to a length if it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}…"
