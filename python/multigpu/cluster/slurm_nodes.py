"""Read the nodes of a SLURM step and their numbers of tasks, as SLURM writes them: `n[9-10],m5` and `2(x2),1`."""

import itertools
import re
from collections.abc import Iterator

NODES = re.compile(r"((?:[^\[\],\s]|\[[\d,-]+\])+)(?:,|$)")  # commas in brackets are those of numbers
TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")
NUMBERS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def nodes_of(text: str) -> list[str]:
    """Return the nodes in this order: `"n[1-2,07],m5"` gives `["n1", "n2", "n07", "m5"]`.

    Raises:
        ValueError: it is not a list of nodes.
    """
    parts = NODES.findall(text)
    if not text or ",".join(parts) != text:
        raise ValueError(f"{text!r} is not a list of nodes")
    return [node for part in parts for node in _nodes(part)]


def _nodes(part: str) -> Iterator[str]:
    """Return the nodes of one entry: `"n[1-2]-ib"` gives n1-ib and n2-ib."""
    fixed, *numbered = re.split(r"\[|\]", part)
    choices = [[fixed]]
    for place, piece in enumerate(numbered):
        choices.append([piece] if place % 2 else [number for span in piece.split(",") for number in _numbers(span)])
    return map("".join, itertools.product(*choices))


def _numbers(span: str) -> list[str]:
    """Return the numbers of a range: `"08-10"` gives 08, 09 and 10."""
    found = NUMBERS.fullmatch(span)
    if not found:
        raise ValueError(f"{span!r} is not a range of nodes")
    first, last = found[1], found[2] or found[1]
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def tasks_of(text: str) -> list[int]:
    """Return the numbers of tasks: `"2(x3),1"` gives `[2, 2, 2, 1]`.

    Raises:
        ValueError: it is not a list of numbers of tasks.
    """
    found = [TASKS.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise ValueError(f"{text!r} does not give the number of tasks of each node")
    return [int(each[1]) for each in found if each for _ in range(int(each[2] or 1))]
