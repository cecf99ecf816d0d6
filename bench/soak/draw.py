"""Random choices that a seed and a number give again: model 17 of seed 3 is always the same."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from multigpu import on_device


class Draw:
    """Choices for one model, and what was chosen.

    Args:
        seed: of the campaign.
        number: of the model in it.
        without: names that are not to be chosen.
    """

    def __init__(self, seed: int, number: int, without: Collection[str] = ()):
        self.random = np.random.default_rng([seed, number])
        self.without = frozenset(without)
        self.chosen: list[str] = []
        self.in_parallel = False

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float, name: str | None = None) -> bool:
        """Yes in this share of the cases; a name is noted, and can be left out."""
        yes = bool(self.random.random() < share) and name not in self.without
        if yes and name:
            self.chosen.append(name)
        return yes

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of some values."""
        return values[int(self.random.integers(len(values)))]

    def kind(self, table: Mapping[str, Any]) -> Any:
        """A value of a table; its name is noted, and can be left out."""
        names = [name for name in table if name not in self.without]
        self.chosen.append(self.one_of(names))
        return table[self.chosen[-1]]

    def gpus(self) -> Any:
        """The devices of the parallel model."""
        count = self.one_of([2] * 6 + [3] * 6 + [4, 5, 6, 7, 8, 8])
        self.chosen.append(f"{count} devices")
        return count

    def part(self) -> AbstractContextManager[None]:
        """The part that a piece of the model belongs to: here there are none."""
        return contextlib.nullcontext()


class DrawInParts(Draw):
    """Choices for a model in two parts, which groups of devices train."""

    LAYOUTS: Mapping[str, list[list[str]]] = {
        "two groups": [["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]],
        "three groups": [["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"], ["CPU:4", "CPU:5"]],
        "two slices": [["CPU:1", "CPU:2"]] * 2,
        "four slices": [["CPU:1", "CPU:2"]] * 4,
        "two groups of two slices": [["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]] * 2,
    }
    pieces = 0

    def gpus(self) -> Any:
        """Groups."""
        return self.kind(self.LAYOUTS)

    def part(self) -> AbstractContextManager[None]:
        """The part that a piece belongs to; the first two pieces are in different ones."""
        drawn, first = self.number(0, 1), self.pieces
        self.pieces += 1
        return on_device(f"GPU:{first if first < 2 else drawn}") if self.in_parallel else contextlib.nullcontext()
