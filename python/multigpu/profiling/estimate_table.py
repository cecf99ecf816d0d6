"""The estimate of each device, as a table."""

import functools
import math
from numbers import Real

import keras

from multigpu.base.arguments import shown
from multigpu.base.table import Table, megabytes
from multigpu.plan.estimates import DeviceEstimate
from multigpu.profiling.layer_table import LayerTable, layer_table

SIZES = ("weights", "optimizer", "copies", "gradients", "activations", "inputs", "total", "received", "sent")


class Estimate(Table[DeviceEstimate]):
    """One row per device, which prints as a table.

    Attributes:
        template: the model.
        optimizer_name: of which optimizer it is, and whether that is an assumption.
    """

    of = DeviceEstimate
    head = ("device", "rows", "parameters", *SIZES[:-2], "in per step", "out per step")
    template: keras.Model
    optimizer_name: str

    @functools.cached_property
    def layers(self) -> LayerTable:
        """The calls of the template's layers, one row each: weights, work, and what travels if it is cut there.

        The template is traced when this is asked for first, which takes most of a second for a large one.

        Raises:
            ValueError: the template does not tell the shapes of its inputs.
        """
        return layer_table(self.template)

    @property
    def parameters(self) -> int:
        """How many numbers the template has."""
        return sum(row.parameters for row in self)

    def slices_that_fit(self, memory: float) -> int | None:
        """How many slices of so many rows can go through devices with this memory, one behind the other.

        Args:
            memory: of a device, in bytes.

        Returns:
            The number for the device where it is smallest; None where activations cannot be traced.

        Raises:
            ValueError: `memory` is no number of bytes.
        """
        if isinstance(memory, bool) or not isinstance(memory, Real) or not 0 < memory < math.inf:
            raise ValueError(
                f"Expected `memory` to be the bytes of a device. Received: memory={shown(memory)}. "
                "Use `memory=24e9` for 24 GB."
            )
        fitting = []
        for row in (row for row in self if row.rows):
            if row.per_slice is None:
                return None
            free = int(memory) - row.total + row.slices * row.per_slice
            fitting.append(max(free, 0) // max(row.per_slice, 1))
        return min(fitting)

    @property
    def weights(self) -> int:
        """Bytes of the template's weights and state, once."""
        return sum(row.weights for row in self)

    @property
    def optimizer(self) -> int:
        """Bytes that the optimizer keeps."""
        return sum(row.optimizer for row in self)

    def text(self, width: int | None = None) -> str:
        """Totals, the table, and what a further slice would take."""
        first = f"{self.parameters:,} parameters: {megabytes(self.weights)} of weights"
        text = f"{first}, {megabytes(self.optimizer)} of optimizer ({self.optimizer_name})\n{super().text(width)}"
        if all(row.slices < 2 for row in self):
            return text
        most = max((row.per_slice for row in self if row.per_slice is not None), default=None)
        return f"{text}\nfor each further slice of so many rows, a device needs up to {megabytes(most)} more"

    def cells(self, row: DeviceEstimate) -> list[str]:
        """A row as words."""
        return [row.device, str(row.rows), f"{row.parameters:,}", *(megabytes(getattr(row, name)) for name in SIZES)]
