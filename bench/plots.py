"""The plots of `RESULTS.md`, drawn from the measurements."""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from first_step import medians
from ways import WAYS

mpl.use("Agg")
COLORS = {"one device": "#888888", "multigpu": "#0b6fb8", "MirroredStrategy": "#d1622b", "old algorithm": "#9a7bb5"}
STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 12}


def step_time(rows: list[dict]) -> plt.Figure:
    """CPU seconds per step over the number of replicas, each way as a line."""
    works = list(dict.fromkeys(row["work"] for row in rows))
    figure, axes = plt.subplots(1, len(works), figsize=(10, 4), layout="constrained", squeeze=False)
    for axis, work in zip(axes[0], works, strict=True):
        of_work = [row for row in rows if row["work"] == work]
        ends = {}
        for way in WAYS[1:]:
            ratios = [row["ms"][way] / row["ms"]["one device"] for row in of_work]
            axis.plot([row["N"] for row in of_work], ratios, "o-", color=COLORS[way], label=way, linewidth=2)
            ends[way] = ratios[-1]
        axis.axhline(1, color=COLORS["one device"], linestyle="--", label="one device")
        axis.set(title=work, xlabel="replicas", xticks=[row["N"] for row in of_work], ylim=(0, None))
        axis.margins(x=0.15)
        for (way, value), height in zip(
            ends.items(), _apart(list(ends.values()), axis.get_ylim()[1] / 16), strict=True
        ):
            place = (of_work[-1]["N"], height)
            axis.annotate(f"{value:.2f}", place, (8, -4), textcoords="offset points", color=COLORS[way])
    axes[0][0].set_ylabel("CPU seconds per step ÷ one device")
    axes[0][0].legend(frameon=False, loc="lower left")
    return figure


def _apart(values: list[float], distance: float) -> list[float]:
    """Heights of labels for these values, close to them and so far apart that they can be read."""
    heights: dict[int, float] = {}
    for number in sorted(range(len(values)), key=lambda number: values[number]):
        lowest = max(heights.values(), default=float("-inf")) + distance
        heights[number] = max(values[number], lowest)
    return [heights[number] for number in range(len(values))]


def first_step(rows: list[dict]) -> plt.Figure:
    """Xception with 8 replicas: what the first step takes in time, later ones in CPU, and all in memory, as bars."""
    found = medians(rows)
    ways = [way for way in WAYS if way in found]
    panels = {"first": "seconds to the first step", "step": "CPU seconds per step", "peak": "peak memory, GB"}
    formats = {"first": ".1f", "step": ".2f", "peak": ".2f"}
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 3.4), layout="constrained", sharey=True)
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        values = [found[way][name] for way in ways]
        bars = axis.barh(ways, values, color=[COLORS[way] for way in ways])
        axis.bar_label(bars, [f"{value:{formats[name]}}" for value in values], padding=3)
        axis.set(title=title, xticks=[], xlim=(0, 1.2 * max(values)))
        axis.spines["bottom"].set_visible(False)
    axes[0].invert_yaxis()
    return figure


def buckets(rows: list[dict]) -> plt.Figure:
    """Xception with 8 replicas: fewer, larger buckets, and what a step takes with them."""
    of_xception = [row for row in rows if row["work"] == "Xception" and row["way"] == "multigpu"]
    sizes = sorted(of_xception, key=lambda row: -row["transfers"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    panels = {"transfers": "transfers per device and step, in + out", "step": "CPU seconds per step"}
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        colors = [COLORS["multigpu" if row["bucket"] == "as shipped" else "one device"] for row in sizes]
        bars = axis.bar([_bucket_name(row) for row in sizes], [row[name] for row in sizes], color=colors)
        axis.bar_label(bars, [f"{row[name]:.3g}" for row in sizes], padding=2)
        axis.set(title=title, yticks=[], xlabel="size of a bucket ÷ all weights")
        axis.margins(y=0.12)
        axis.spines["left"].set_visible(False)
    axes[0].axhline(72, color=COLORS["MirroredStrategy"], linestyle="--")
    axes[0].annotate("must reach: 72", (len(sizes) - 0.5, 72), (0, 4), textcoords="offset points", ha="right")
    return figure


def minigooglenet(rows: list[dict]) -> plt.Figure:
    """Seconds per epoch as bars, and accuracies over the epochs, as lines."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    names = ["one device" if row["way"] == "one device" else f"{row['N']} devices" for row in rows]
    last = [row["seconds"][-1] for row in rows]
    bars = left.bar(names, last, color=[COLORS[row["way"]] for row in rows])
    left.bar_label(bars, [f"{seconds:.1f}" for seconds in last], padding=2)
    left.set(title="seconds of the last epoch", yticks=[], ylim=(0, 1.15 * max(last)))
    left.spines["left"].set_visible(False)
    for row, name in zip(rows, names, strict=True):
        for (rows_of, accuracies), line in zip(row["accuracy"].items(), ("o-", "o:"), strict=True):
            epochs, label = range(1, len(accuracies) + 1), f"{name}, batch of {row['batch']}, {rows_of}"
            right.plot(epochs, accuracies, line, color=COLORS[row["way"]], label=label)
    right.set(title=f"accuracy, {rows[0]['data']}", xlabel="epoch", ylim=(0, 1))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(frameon=False)
    return figure


def _bucket_name(row: dict) -> str:
    return row["size"].removesuffix(" of all weights") + ("\nas shipped" if row["bucket"] == "as shipped" else "")


PLOTS: dict[str, Callable[[list[dict]], plt.Figure]] = {
    "step_time": step_time,
    "first_step": first_step,
    "transfers": buckets,
    "minigooglenet": minigooglenet,
}


def save(name: str, rows: list[dict], folder: Path) -> Path | None:
    """Draws the plot of a benchmark, if it has one."""
    if name not in PLOTS or not rows:
        return None
    path = folder / f"{name}.png"
    with plt.rc_context(STYLE):
        figure = PLOTS[name](rows)
        figure.savefig(path, dpi=110)
        plt.close(figure)
    return path
