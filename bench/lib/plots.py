"""The plots of `RESULTS.md`, drawn from the measurements."""

import statistics
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.lib.strategies import STRATEGIES
from bench.lib.subprocess_metrics import medians

mpl.use("Agg")
COLORS = {"one device": "#888888", "multigpu": "#0b6fb8", "MirroredStrategy": "#d1622b", "Keras 2 algorithm": "#9a7bb5"}
STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 12}


def step_time(rows: list[dict]) -> plt.Figure:
    """CPU seconds per step over the number of replicas, each strategy as a line."""
    several = [
        row for row in rows if any(other["N"] != row["N"] for other in rows if other["workload"] == row["workload"])
    ]
    workloads = list(dict.fromkeys(row["workload"] for row in several))
    figure, axes = plt.subplots(1, len(workloads), figsize=(10, 4), layout="constrained", squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        of_workload = [row for row in rows if row["workload"] == workload]
        ends = {}
        for strategy in STRATEGIES[1:]:
            found = [row for row in of_workload if strategy in row["ms"]]
            ratios = [row["ms"][strategy] / row["ms"]["one device"] for row in found]
            counts = [row["N"] for row in found]
            axis.plot(counts, ratios, "o-", color=COLORS[strategy], label=strategy, linewidth=2)
            ends[strategy] = (counts[-1], ratios[-1])
        axis.axhline(1, color=COLORS["one device"], linestyle="--", label="one device")
        counts = [row["N"] for row in of_workload]
        axis.set_xscale("log", base=2)
        axis.set(title=workload, xlabel="replicas", ylim=(0, None))
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.margins(x=0.15)
        values = [value for _, value in ends.values()]
        for (strategy, (count, value)), height in zip(
            ends.items(), _apart(values, axis.get_ylim()[1] / 16), strict=True
        ):
            place = (count, height)
            axis.annotate(f"{value:.2f}", place, (8, -4), textcoords="offset points", color=COLORS[strategy])
    axes[0][0].set_ylabel("CPU seconds per step ÷ one device")
    axes[0][0].legend(frameon=False, loc="lower left")
    return figure


def engines(rows: list[dict]) -> plt.Figure:
    """CPU seconds per step over the number of devices, each engine and Keras' DataParallel as a line."""
    of_steps = [row for row in rows if row["task"] == "steps"]
    lines = {
        "multigpu on TensorFlow": ("tensorflow", "multigpu", COLORS["multigpu"]),
        "multigpu on JAX": ("jax", "multigpu", "#2a9d6f"),
        "DataParallel on JAX": ("jax", "DataParallel", COLORS["MirroredStrategy"]),
    }
    workloads = list(dict.fromkeys(row["workload"] for row in of_steps))
    figure, axes = plt.subplots(1, len(workloads), figsize=(10, 4), layout="constrained", squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        of_workload = [row for row in of_steps if row["workload"] == workload]
        ends = {}
        for label, (engine, way, color) in lines.items():
            found = [row for row in of_workload if row["engine"] == engine]
            ratios = [row["ms"][way] / row["ms"]["one device"] for row in found]
            axis.plot([row["N"] for row in found], ratios, "o-", color=color, label=label, linewidth=2)
            ends.update({color: ratios[-1]} if ratios else {})  # the rows of this line may come later
        axis.axhline(1, color=COLORS["one device"], linestyle="--", label="one device of the same engine")
        axis.set_xscale("log", base=2)
        axis.set(title=workload, xlabel="devices", ylim=(0, None))
        counts = sorted({row["N"] for row in of_workload})
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.margins(x=0.15)
        heights = _apart(list(ends.values()), axis.get_ylim()[1] / 16)
        for (color, value), height in zip(ends.items(), heights, strict=True):
            axis.annotate(f"{value:.2f}", (counts[-1], height), (8, -4), textcoords="offset points", color=color)
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
    panels = {"first": "seconds to the first step", "step": "CPU seconds per step", "peak": "peak memory, GB"}
    formats = {"first": ".1f", "step": ".2f", "peak": ".2f"}
    found = medians(rows, list(panels))
    strategies = [strategy for strategy in STRATEGIES if strategy in found]
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 3.4), layout="constrained", sharey=True)
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        values = [found[strategy][name] for strategy in strategies]
        bars = axis.barh(strategies, values, color=[COLORS[strategy] for strategy in strategies])
        axis.bar_label(bars, [f"{value:{formats[name]}}" for value in values], padding=3)
        axis.set(title=title, xticks=[], xlim=(0, 1.2 * max(values)))
        axis.spines["bottom"].set_visible(False)
    axes[0].invert_yaxis()
    return figure


def buckets(rows: list[dict]) -> plt.Figure:
    """Xception with 8 replicas: fewer, larger buckets, and what a step takes with them."""
    of_xception = [row for row in rows if row["workload"] == "Xception" and row["strategy"] == "multigpu"]
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


def seconds_per_epoch(row: dict) -> float:
    """The median. The first epoch, in which functions are traced, does not count, unless it is the only one."""
    return statistics.median(row["seconds"][1:] or row["seconds"])


def minigooglenet(rows: list[dict]) -> plt.Figure:
    """Seconds per epoch as bars, and accuracies over the epochs, as lines."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    names = ["one device" if row["strategy"] == "one device" else f"{row['N']} devices" for row in rows]
    seconds = [seconds_per_epoch(row) for row in rows]
    bars = left.bar(names, seconds, color=[COLORS[row["strategy"]] for row in rows])
    left.bar_label(bars, [f"{each:.1f}" for each in seconds], padding=2)
    left.set(title="seconds per epoch", yticks=[], ylim=(0, 1.15 * max(seconds)))
    left.spines["left"].set_visible(False)
    for row, name in zip(rows, names, strict=True):
        for (rows_of, accuracies), line in zip(row["accuracy"].items(), ("o-", "o:"), strict=True):
            epochs, label = range(1, len(accuracies) + 1), f"{name}, batch of {row['batch']}, {rows_of}"
            right.plot(epochs, accuracies, line, color=COLORS[row["strategy"]], label=label)
    right.set(title=f"accuracy, {rows[0]['data']}", xlabel="epoch", ylim=(0, 1))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=9)
    return figure


def _bucket_name(row: dict) -> str:
    return row["size"].removesuffix(" of all weights") + ("\nas shipped" if row["bucket"] == "as shipped" else "")


PLOTS: dict[str, Callable[[list[dict]], plt.Figure]] = {
    "step_time": step_time,
    "engines": engines,
    "first_step": first_step,
    "transfers": buckets,
    "minigooglenet": minigooglenet,
}


def save(name: str, rows: list[dict], folder: Path) -> Path | None:
    """Draws the plot of a benchmark, if it has one."""
    if name not in PLOTS or len(rows) < 2:  # one row shows no course
        return None
    path = folder / f"{name}.png"
    with plt.rc_context(STYLE):
        figure = PLOTS[name](rows)
        figure.savefig(path, dpi=110)
        plt.close(figure)
    return path


def save_pipeline(row: dict, path: Path) -> None:
    """Draws what two devices do when, slice by slice, from the tasks of a replay."""
    with plt.rc_context(STYLE):
        _pipeline(row).savefig(path, dpi=110)


def _pipeline(row: dict) -> plt.Figure:
    figure, axis = plt.subplots(figsize=(9, 2.3), layout="constrained")
    for part, backward, number, begin, end in row["times"]:
        color = mpl.colormaps["Oranges" if backward else "Blues"](0.35 + 0.12 * number)
        axis.barh(1 - part, (end - begin) * 1000, left=begin * 1000, color=color, edgecolor="white", height=0.8)
        label = f"{number + 1}'" if backward else f"{number + 1}"
        axis.text((begin + end) * 500, 1 - part, label, ha="center", va="center")
    axis.set_yticks([1, 0], ["first part", "second part"])
    axis.set_xlabel("ms; slices forward (1, 2, …), the loss of all, and back (1', 2', …)")
    axis.spines["left"].set_visible(False)
    axis.tick_params(left=False)
    return figure
