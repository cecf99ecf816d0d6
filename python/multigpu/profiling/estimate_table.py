"""Tables of an estimate: of each device, and of the layers, to choose where to cut a model."""

import functools
import math
from numbers import Real

import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.base.table import Table, megabytes, millions
from multigpu.engines import estimate_layers
from multigpu.plan.estimates import DeviceEstimate, LayerEstimate

SIZES = ("weights", "optimizer", "copies", "gradients", "activations", "inputs", "total", "received", "sent")


class LayerTable(Table[LayerEstimate]):
    """One row per call of a layer, in the order of the calls, which prints as a table."""

    of = LayerEstimate
    head = ("layer", "weights", "so far", "work per row", "so far", "output per row", "cut behind it")

    def cells(self, row: LayerEstimate) -> list[str]:
        """Return the cells of a row as text."""
        return [
            row.name,
            megabytes(row.weights),
            f"{row.weights_share:.1%}",
            millions(row.work, "MFLOP"),
            "-" if row.work_share is None else f"{row.work_share:.1%}",
            megabytes(row.output),
            megabytes(row.crossing),
        ]


class Estimate(Table[DeviceEstimate]):
    """One row per device, which prints as a table.

    Attributes:
        template: the model.
        weights: the bytes of the template's weights and state, counted once.
        optimizer: the bytes of the optimizer's variables, counted once.
        optimizer_name: the name of the optimizer, and whether it is an assumption.
    """

    of = DeviceEstimate
    head = ("device", "rows", "parameters", *SIZES[:-2], "in per step", "out per step")
    template: keras.Model
    weights: int
    optimizer: int
    optimizer_name: str

    @functools.cached_property
    def layers(self) -> LayerTable:
        """The calls of the template's layers, one row each, with weights, work, and the bytes that a cut transfers.

        The first access traces the template, which takes most of a second for a large one.

        Raises:
            ValueError: the shapes of the template's inputs are unknown.
        """
        return LayerTable(estimate_layers(self.template))

    @property
    def parameters(self) -> int:
        """The number of parameters of the template."""
        return self.template.count_params()

    def slices_that_fit(self, memory: float) -> int | None:
        """Return how many slices can go through devices with this memory, one behind the other.

        Args:
            memory: the memory of a device, in bytes.

        Returns:
            The smallest number of all devices. None if activations cannot be traced, and on JAX, which has no slices.

        Raises:
            ValueError: `memory` is not a number of bytes.
        """
        if isinstance(memory, bool) or not isinstance(memory, Real) or not 0 < memory < math.inf:
            raise refuse(
                "`memory` to be the bytes of a device", f"memory={shown(memory)}", "Use `memory=24e9` for 24 GB."
            )
        fitting = []
        for row in (row for row in self if row.rows):
            if row.per_slice is None:
                return None
            free = int(memory) - row.total + row.slices * row.per_slice
            fitting.append(max(free, 0) // max(row.per_slice, 1))
        return min(fitting)

    def text(self, width: int | None = None) -> str:
        """Return the totals, the table, and the memory of one more slice, as text."""
        first = f"{self.parameters:,} parameters: {megabytes(self.weights)} of weights"
        text = f"{first}, {megabytes(self.optimizer)} of optimizer ({self.optimizer_name})\n{super().text(width)}"
        if all(row.slices < 2 for row in self):
            return text
        most = max((row.per_slice for row in self if row.per_slice is not None), default=None)
        return f"{text}\nfor each further slice of so many rows, a device needs up to {megabytes(most)} more"

    def cells(self, row: DeviceEstimate) -> list[str]:
        """Return the cells of a row as text."""
        return [row.device, str(row.rows), f"{row.parameters:,}", *(megabytes(getattr(row, name)) for name in SIZES)]
