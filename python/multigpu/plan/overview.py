"""A table of what each device stores, receives and sends in a training step."""

from dataclasses import dataclass

from multigpu.base.table import Table, megabytes


@dataclass(frozen=True)
class DeviceRow:
    """The work of one device for a parallel model. All sizes are in bytes.

    Attributes:
        device: name of the device.
        replica: number of the replica that runs there (the first, if several run there), or None.
        rows: rows of a batch that the device processes, or None if no batch size was given.
        weights: weights and state that the device owns.
        slots: the optimizer's variables for them; None before the optimizer is built.
        received: weights of other devices, and gradients of its own weights, that arrive in a step.
        sent: its own weights, and gradients of other devices' weights, that leave in a step.
        transfers: number of tensors that arrive and leave.
    """

    device: str
    replica: int | None
    rows: int | None
    weights: int
    slots: int | None
    received: int
    sent: int
    transfers: int


class Overview(Table[DeviceRow]):
    """One row per device, which prints as a table."""

    of = DeviceRow
    head = ("device", "replica", "rows", "weights", "optimizer", "in per step", "out per step", "transfers")

    def cells(self, row: DeviceRow) -> list[str]:
        """Return the cells of a row as text."""
        sizes = [row.weights, row.slots, row.received, row.sent]
        counts = ["-" if n is None else str(n) for n in (row.replica, row.rows)]
        return [row.device, *counts, *map(megabytes, sizes), str(row.transfers)]
