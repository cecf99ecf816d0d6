"""What is estimated of each device, as a table."""

from dataclasses import dataclass

from multigpu.devices.table import Table, megabytes


@dataclass(frozen=True)
class DeviceEstimate:
    """What one device has to hold and to move. Sizes are in bytes.

    Attributes:
        device: name of the device.
        rows: rows of a batch that its replica gets.
        parameters: how many numbers of weights and state it owns.
        weights: bytes of them.
        optimizer: what the optimizer keeps beside them.
        copies: copies of the other devices' weights, which the replica needs while a step lasts.
        gradients: of all weights, as the replica gives them, and the sum of those of its own.
        activations: what the replica needs at most at once beside that; None where it cannot be traced.
        inputs: rows of the next batch, which several GPUs get ahead of time.
        total: all of that together, without what is None.
        received: bytes that arrive in a step: weights, gradients and rows.
        sent: bytes that leave in a step: weights, gradients and outputs.
    """

    device: str
    rows: int
    parameters: int
    weights: int
    optimizer: int
    copies: int
    gradients: int
    activations: int | None
    inputs: int
    total: int
    received: int
    sent: int


SIZES = ("weights", "optimizer", "copies", "gradients", "activations", "inputs", "total", "received", "sent")


class Estimate(Table[DeviceEstimate]):
    """One row per device, which prints as a table."""

    __slots__ = ()
    of = DeviceEstimate
    head = ("device", "rows", "parameters", *SIZES[:-2], "in per step", "out per step")

    @property
    def parameters(self) -> int:
        """How many numbers the template has."""
        return sum(row.parameters for row in self)

    @property
    def weights(self) -> int:
        """Bytes of the template's weights and state, once."""
        return sum(row.weights for row in self)

    @property
    def optimizer(self) -> int:
        """Bytes that the optimizer keeps."""
        return sum(row.optimizer for row in self)

    def __str__(self) -> str:
        first = f"{self.parameters:,} parameters: {megabytes(self.weights)} of weights"
        return f"{first}, {megabytes(self.optimizer)} of optimizer\n{super().__str__()}"

    def cells(self, row: DeviceEstimate) -> list[str]:
        """A row as words."""
        return [row.device, str(row.rows), f"{row.parameters:,}", *(megabytes(getattr(row, name)) for name in SIZES)]
