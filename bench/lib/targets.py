"""The targets of this package, each compared with what was measured."""

from collections.abc import Callable
from typing import NamedTuple

from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import medians

Measured = dict[str, list[dict]]
NOT_MEASURED = (KeyError, IndexError, StopIteration)  # what looking for a row raises that is not there


class Target(NamedTuple):
    """A ratio with its target; `value` finds it in the measurements, `why` says what keeps it from the target."""

    name: str
    must: float
    aim: float | None
    value: Callable[[Measured], float]
    why: Callable[[Measured], str] = lambda measured: ""
    at_least: bool = False

    def reached(self, value: float, target: float) -> bool:
        """Whether a value is on the right side of a target."""
        return value >= target if self.at_least else value <= target

    def cells(self, measured: Measured) -> list[str]:
        """Its row of the table."""
        sign = "≥" if self.at_least else "≤"
        aim = "as few as still overlap" if self.aim is None else f"{self.aim:g}"
        try:
            value = self.value(measured)
        except NOT_MEASURED:
            return [self.name, f"{sign} {self.must:g}", aim, "not measured", "–"]
        return [
            self.name,
            f"{sign} {self.must:g}",
            aim,
            f"{value:#.3g}",
            self.verdict(value),
        ]

    def reason(self, measured: Measured) -> str:
        """What keeps it from the target, once all that it is read from is measured."""
        try:
            return self.why(measured)
        except NOT_MEASURED:
            return ""

    def verdict(self, value: float) -> str:
        """Whether it is reached, and by how much not."""
        if self.aim is not None and self.reached(value, self.aim):
            return "yes, and the aim"
        return "yes" if self.reached(value, self.must) else f"no, off by {abs(value / self.must - 1):.2%}"


def step_ratio(workload: str, strategy: str, num_replicas: int = 8) -> Callable[[Measured], float]:
    """CPU seconds per step of this package over those of another strategy."""

    def value(measured: Measured) -> float:
        row = next(row for row in measured["step_time"] if (row["workload"], row["N"]) == (workload, num_replicas))
        return row["ms"]["multigpu"] / row["ms"][strategy]

    return value


def why_not_mirrored(measured: Measured) -> str:
    row = next(row for row in measured["step_time"] if (row["workload"], row["N"]) == ("conv net", 8))
    least = row["ms"]["one device"] / row["ms"]["MirroredStrategy"]
    return (
        f"One device by itself takes {least:.2f} of MirroredStrategy's CPU seconds, and this package "
        f"{row['ms']['multigpu'] / row['ms']['one device']:.2f} of one device's: the least possible is {least:.2f}."
    )


def bytes_over_ring(num_replicas: int) -> Callable[[Measured], float]:
    """The worst of the models."""
    return lambda measured: sorted(
        row["mean"] for row in measured["transfers"] if row["N"] == num_replicas and row["strategy"] == "multigpu"
    )[-1]


def xception_transfers(measured: Measured) -> float:
    rows = [row for row in measured["transfers"] if row["workload"] == "Xception" and row["bucket"] == "as shipped"]
    return rows[0]["transfers"]


def why_transfers(measured: Measured) -> str:
    rows = [row for row in measured["transfers"] if row["workload"] == "Xception"]
    shipped, fewest = rows[0], min(rows, key=lambda row: row["transfers"])
    return (
        f"That is with buckets of {shipped['size']}, as shipped. Buckets of {fewest['size']} would "
        f"make {fewest['transfers']:.0f} transfers, in a step of {fewest['step'] / shipped['step']:.2f} times the CPU "
        "seconds."
    )


def owner_balance(measured: Measured) -> float:
    row = next(row for row in measured["owner_balance"] if row["optimizer"] == "Adam")
    return row["most"] / row["mean"]


def why_owner_balance(measured: Measured) -> str:
    row = next(row for row in measured["owner_balance"] if row["optimizer"] == "Adam")
    return (
        f"With Adam's two slots, Xception's largest weight has {row['largest'] / 1e6:.2f} MB. An eighth of all weights "
        f"and slots is {row['mean'] / 1e6:.2f} MB. A weight has one owner, so {row['largest'] / row['mean']:.4f} is "
        f"the least possible; the measured value is {row['most'] / row['mean']:.4f}."
    )


def first_step(name: str, strategy: str) -> Callable[[Measured], float]:
    """A number of this package's Xception over that of another strategy."""

    def value(measured: Measured) -> float:
        found = medians(measured["first_step"], [name])
        return found["multigpu"][name] / found[strategy][name]

    return value


def speedup(measured: Measured) -> float:
    ms = measured["speedup"][0]["ms"]
    return ms["one device"] / ms["multigpu"]


def why_speedup(measured: Measured) -> str:
    row = measured["speedup"][0]
    return (
        f"Other processes kept {row['load']:.1f} of {row['cores']} cores busy meanwhile (load average), and a "
        "replica that waits for a core holds up the step."
        if row["load"] > 0.5
        else "Slicing, the loss and the data pipeline are not spread over both cores."
    )


def embedding(measured: Measured) -> float:
    ms = _strategies(measured)["multigpu"]
    return ms["large"] / ms["small"]


def why_embedding(measured: Measured) -> str:
    strategies = _strategies(measured)
    ours, bare = strategies["multigpu"], strategies["bare"]
    return (
        f"The reason is the machine's memory, not the work. If the ids fall on 10,000 rows of the same large table, "
        f"the ratio is {ours['large, 10,000 rows in use'] / ours['small']:.2f}. Without a model, TensorFlow's lookup "
        f"and update of as many rows take {bare['large'] - bare['small']:.2f} ms more on the large table than on the "
        f"small one. A whole step of multigpu takes {ours['large'] - ours['small']:.2f} ms more. No cache holds the "
        "256 MB that the rows are drawn from. One device copies the table in every step, and its ratio is "
        f"{strategies['one device']['large'] / strategies['one device']['small']:.1f}."
    )


def _strategies(measured: Measured) -> dict[str, dict[str, float]]:
    return {row["strategy"]: row["ms"] for row in measured["embedding"]}


def overhead(measured: Measured) -> float:
    row = next(row for row in measured["overhead"] if row["clock"] == "CPU")
    return row["ms"]["multigpu"] / row["ms"]["one device"]


TARGETS = [
    Target("CPU s per step ÷ one device, conv net, N = 8", 1.05, 1.02, step_ratio("conv net", "one device")),
    Target("same, MLP 4×1024, global batch 256, N = 8", 1.8, 1.4, step_ratio("MLP 4×1024", "one device")),
    Target(
        "CPU s per step ÷ MirroredStrategy, conv net, N = 8",
        0.65,
        0.5,
        step_ratio("conv net", "MirroredStrategy"),
        why_not_mirrored,
    ),
    Target("same, MLP 4×1024, N = 8", 0.65, 0.5, step_ratio("MLP 4×1024", "MirroredStrategy")),
    *(
        Target(
            f"bytes of weights and gradients moved per device and step (mean) ÷ 2·(N−1)/N·W, N = {n}",
            1.1,
            1.02,
            bytes_over_ring(n),
        )
        for n in (2, 4, 8)
    ),
    Target(
        "transfers of weights and gradients per device and step, in + out, Xception, N = 8",
        72,
        None,
        xception_transfers,
        why_transfers,
    ),
    Target(
        "owner balance on Xception, N = 8, weights + slots of Adam: most loaded ÷ mean",
        1.1,
        1.02,
        owner_balance,
        why_owner_balance,
    ),
    Target("time to first step, Xception, N = 8 ÷ one device", 4.5, 2.5, first_step("first", "one device")),
    Target("peak memory of the same ÷ MirroredStrategy", 0.6, 0.4, first_step("peak", "MirroredStrategy")),
    Target(
        "wall speed-up, conv net, 2 replicas on 2 cores ÷ one single-threaded device on 1 core",
        1.8,
        1.95,
        speedup,
        why_speedup,
        at_least=True,
    ),
    Target("step time with a 1,000,000×64 embedding ÷ 10,000×64, N = 2", 1.2, 1.05, embedding, why_embedding),
    Target("CPU s per step of `fit`, 10 parameters, N = 2 ÷ one device", 2, 1.5, overhead),
]


def table(measured: Measured) -> str:
    """All targets, and below a reason for each that is not reached."""
    lines = [target.cells(measured) for target in TARGETS]
    reasons = [
        f"- **{cells[0]}**: {target.value(measured):.5g} instead of {target.must:g}. {target.reason(measured)}".strip()
        for target, cells in zip(TARGETS, lines, strict=True)
        if cells[4].startswith("no")
    ]
    below = "\n\nNot reached, and why:\n\n" + "\n".join(reasons) if reasons else ""
    return markdown_table(["metric", "must reach", "aim", "measured", "reached?"], lines) + below
