"""Random choices that a seed and a number give again: model 17 of seed 3 is always the same."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np


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
