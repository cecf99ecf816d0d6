"""The measured times of a training step, and a sentence on whether several devices pay."""

from dataclasses import dataclass

from multigpu.base.table import text_table
from multigpu.plan.plan import Plan

NOTICED = 0.05  # a share of time that is large enough to be mentioned


@dataclass(frozen=True)
class Measurement:
    """Where the time of a training step goes. Seconds are medians of wall time.

    Attributes:
        devices: the devices of the parallel model.
        batch_size: rows of a batch.
        alone: the devices where the template ran alone: the first one, or the devices that its parts name.
        one_device: seconds of a step of the template there, with its batch in memory.
        all_devices: seconds of a step of the parallel model, with its batch in memory.
        slice: seconds of a step of the template there with the rows of one replica.
        input: seconds to get a batch from the data.
        speed_up: `one_device` ÷ `all_devices`.
        compute: the share of a step of `fit()` in which replicas compute.
        transfer: the share in which weights, gradients and rows are transferred, and outputs are merged.
        waiting: the share in which the devices wait for the next batch.
        verdict: one sentence on whether several devices pay, and if not, why, and what would help.
    """

    devices: tuple[str, ...]
    batch_size: int
    alone: str
    one_device: float
    all_devices: float
    slice: float
    input: float
    speed_up: float
    compute: float
    transfer: float
    waiting: float
    verdict: str

    def __repr__(self) -> str:
        steps = [
            ["", "ms per step"],
            [f"{self.alone} alone, {self.batch_size} rows", f"{1000 * self.one_device:.1f}"],
            [f"{len(self.devices)} devices together, {self.batch_size} rows", f"{1000 * self.all_devices:.1f}"],
            ["loading a batch", f"{1000 * self.input:.1f}"],
        ]
        shares = f"compute {self.compute:.0%}, transfer {self.transfer:.0%}, waiting for input {self.waiting:.0%}"
        return f"{text_table(steps)}\nspeed-up {self.speed_up:.2f}; {shares}\n{self.verdict}"


def measurement_from_seconds(
    plan: Plan, rows: int, on_one_device: float, everywhere: float, part: float, source: float
) -> Measurement:
    """Return the measurement for the seconds of a step on one device, on all, of one slice, and of loading."""
    whole = max(everywhere, source)
    waiting = (whole - everywhere) / whole
    compute = min(part, everywhere) / whole
    speed_up = on_one_device / everywhere
    return Measurement(
        devices=plan.devices,
        batch_size=rows,
        alone=" + ".join(plan.parts) if plan.groups else plan.devices[0],
        one_device=on_one_device,
        all_devices=everywhere,
        slice=part,
        input=source,
        speed_up=speed_up,
        compute=compute,
        transfer=1 - waiting - compute,
        waiting=waiting,
        verdict=_verdict(plan, rows, speed_up, 1 - waiting - compute, waiting),
    )


def _verdict(plan: Plan, rows: int, speed_up: float, transfer: float, waiting: float) -> str:
    number = len(plan.devices)
    if waiting > max(transfer, NOTICED):
        return (
            f"{'It pays less than it could' if speed_up > 1 else 'It does not pay'}: for {waiting:.0%} of the time the "
            "devices wait for the next batch, so make the input pipeline faster, with `tf.data`, `cache()` and "
            "`prefetch()`."
        )
    if speed_up > 1:
        one = f"{len(plan.parts)} alone" if plan.groups else "one"
        return f"It pays: {number} devices are {speed_up:.2f} times as fast as {one}."
    if any(device.startswith("CPU") for device in plan.devices):
        on_gpus = f" Transfer takes {transfer:.0%} of the time; a larger batch would reduce this share, also on GPUs."
        return (
            "It does not pay here: these devices are parts of one CPU, and one device can use the whole CPU."
            f"{on_gpus if transfer > NOTICED else ''}"
        )
    if transfer <= NOTICED:
        return (
            f"It does not pay: one device takes as long for {plan.rows(rows)[0]} rows as for {rows}, so use a larger "
            f"batch, or fewer GPUs than {number}."
        )
    return (
        f"It does not pay: {transfer:.0%} of the time goes to sending weights and gradients, which takes as long for "
        f"{rows} rows as for more, so use a larger batch, or fewer GPUs than {number}."
    )
