"""What a trace shows about a replica that then runs op by op."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from multigpu.engines.tensorflow.weights.rows import Rows


class OfTrace(NamedTuple):
    """The facts that a trace shows about a replica that then runs op by op.

    Attributes:
        ways: how rows of each copy of weights and tables are looked up, by their ids.
        same: the places of outputs that no row reaches, as `OutputLayout.same`.
        without_rank: the places of outputs with an unknown number of axes, as `OutputLayout.without_rank`.
    """

    ways: Mapping[int, Sequence[Rows]] = {}  # it is not changed
    same: Collection[int] = ()
    without_rank: Collection[int] = ()
