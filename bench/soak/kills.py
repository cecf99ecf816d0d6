"""Processes killed while they save: the file has to be the old one or the new one, and nothing may pile up."""

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from killed_saves import killed_saves


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0
) -> Iterator[dict[str, Any]]:
    """One row per kill."""
    with tempfile.TemporaryDirectory() as folder:
        results, files = killed_saves(Path(folder), count, seed * 1_000_000 + first)
    hidden = [name for name in files if name.startswith(".")]
    for number, (name, values, left) in enumerate(results, first):
        whole = values in ([1.0], [2.0])
        answer = "whole" if whole and left <= 1 and not hidden else "off"
        yield {
            "number": number,
            "answer": answer,
            "file": name,
            "in a save": left,
            "why": "" if whole else str(values)[:300],
            "hidden afterwards": len(hidden),
        }
