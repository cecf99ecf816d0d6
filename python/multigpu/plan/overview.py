"""A table of what each device stores, receives and sends in a training step."""

from dataclasses import dataclass

from multigpu.base.table import Table, megabytes


@dataclass(frozen=True)
class DeviceRow:
    """The work of one device for a parallel model. All sizes are in bytes.

    Attributes:
        device: name of the device.
        replica: number of the replica that runs there, of several parts the first one's, or None.
        rows: rows of a batch that run there, or None where no batch size was given.
        weights: weights and state that the device owns.
        slots: optimizer variables beside them; None before the optimizer is built.
        received: weights, and gradients of its own weights, that arrive in a step.
        sent: its own weights, and gradients of others, that leave in a step.
        transfers: number of tensors in which that arrives and leaves.
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

    __slots__ = ()
    of = DeviceRow
    head = ("device", "replica", "rows", "weights", "optimizer", "in per step", "out per step", "transfers")

    def cells(self, row: DeviceRow) -> list[str]:
        """A row as words."""
        sizes = [row.weights, row.slots, row.received, row.sent]
        counts = ["-" if n is None else str(n) for n in (row.replica, row.rows)]
        return [row.device, *counts, *map(megabytes, sizes), str(row.transfers)]
