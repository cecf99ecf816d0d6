"""Plot a training history, also on machines without a display."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.saving.atomic_write import expanded


def plot_history(history: Any, filepath: Any = None) -> Any:
    """Plot each metric over the epochs, for training and validation, into a file or a notebook. It needs no display.

    Args:
        history: the result of `fit()`, or its `history`: a dict of lists with one value per epoch.
        filepath: path of the file. The ending names the format, such as `.png`, `.svg` or `.pdf`; without one, it is
            `.png`. None writes no file.

    Returns:
        The path of the file. Without a file, a figure of matplotlib, which notebooks show.

    Raises:
        ValueError: the history has nothing to plot, or matplotlib does not write this format.
        ImportError: matplotlib is not installed: `pip install matplotlib`.
        OSError: the file cannot be written.

    Example:
        >>> import multigpu
        >>> picture = multigpu.plot_history({"loss": [3.0, 2.0], "val_loss": [3.5, 2.5]}, "history.png")
    """
    metrics = _metrics(history)
    path = None if filepath is None else expanded(filepath)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # draws into memory, without a display

        from multigpu.profiling.notebook_figure import DOTS_PER_INCH, NotebookFigure
    except ImportError as error:
        use = "Install it with `pip install matplotlib`."
        raise refuse("matplotlib, which draws the picture", "a Python without it", use, ImportError) from error
    figure = NotebookFigure(figsize=(7, 1 + 2.5 * len(metrics)), layout="constrained")
    types = FigureCanvasAgg(figure).get_supported_filetypes()
    path = path and _with_ending(path, types)
    panels = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, lines) in zip(panels, metrics.items(), strict=True):
        for kind, values in lines.items():
            panel.plot(_epochs(values, lines.get("training", values)), values, "o-", markersize=3, label=kind)
        panel.set_ylabel(name)
        panel.legend(frameon=False)
    panels[-1].set_xlabel("epoch")
    if path is None:
        return figure
    figure.savefig(path, dpi=DOTS_PER_INCH)
    return path


def _metrics(history: Any) -> dict[str, dict[str, Sequence[float]]]:
    """Return a dict: name of a metric → `"training"` and `"validation"` → its values."""
    values = getattr(history, "history", history)
    if not isinstance(values, Mapping) or not values or not all(map(_is_metric, values, values.values())):
        raise refuse(
            "`history` to be the return value of `fit()`, with a value for each epoch",
            f"history={shown(history)}",
            'Use `plot_history(parallel.fit(x, y), "history.png")`.',
        )
    names = [name for name in values if not name.startswith("val_")] or [name.removeprefix("val_") for name in values]
    kinds = {"training": "", "validation": "val_"}
    return {
        name: {kind: values[prefix + name] for kind, prefix in kinds.items() if prefix + name in values}
        for name in names
    }


def _is_metric(name: object, values: object) -> bool:
    """Return whether values are numbers of one epoch or more."""
    try:
        numbers = np.asarray(values, "float64")
    except Exception:  # raised for values that numpy cannot convert to numbers
        return False
    return isinstance(name, str) and isinstance(values, Sequence | np.ndarray) and numbers.size > 0 and numbers.ndim > 0


def _with_ending(path: Path, kinds: Iterable[str]) -> Path:
    path = path if path.suffix else path.with_suffix(".png")
    if path.suffix.lower().removeprefix(".") not in kinds:
        raise refuse(
            f"`filepath` to end in one of {', '.join(f'.{kind}' for kind in sorted(kinds))}",
            f"filepath={shown(str(path))}",
            "Use `history.png`.",
        )
    return path


def _epochs(values: Sequence[float], trained: Sequence[float]) -> list[int]:
    """Return the epochs at which the values were measured. `validation_freq` leaves some out."""
    every = max(len(trained) // max(len(values), 1), 1)
    return [every * (number + 1) for number in range(len(values))]
