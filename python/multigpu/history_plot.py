"""A training history as a picture, on machines without a display."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MISSING = (
    "Expected matplotlib, which draws the picture. Received: a Python without it. "
    "Install it with `pip install 'multigpu[plots]'`."
)


def plot_history(history: Any, filepath: Any) -> Path:
    """Draws each metric over the epochs, of training and validation, into a file. It needs no display.

    Args:
        history: what `fit()` returned, or its `history`: a dict of lists with one value per epoch.
        filepath: where to; its ending names the kind of picture, such as `.png`, `.svg` or `.pdf`.

    Returns:
        The path of the file.

    Raises:
        ValueError: there is nothing to draw.
        ImportError: matplotlib is not installed; `pip install 'multigpu[plots]'` brings it.
        OSError: the file cannot be written.

    Example:
        >>> import multigpu
        >>> picture = multigpu.plot_history({"loss": [3.0, 2.0], "val_loss": [3.5, 2.5]}, "history.png")
    """
    metrics = _metrics(history)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # draws into memory, whatever the display
        from matplotlib.figure import Figure  # not pyplot, which would keep it, and choose a display
    except ImportError as error:
        raise ImportError(MISSING) from error
    figure = Figure(figsize=(7, 1 + 2.5 * len(metrics)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, lines) in zip(panels, metrics.items(), strict=True):
        for kind, values in lines.items():
            panel.plot(_epochs(values, lines.get("training", values)), values, "o-", markersize=3, label=kind)
        panel.set_ylabel(name)
        panel.legend(frameon=False)
    panels[-1].set_xlabel("epoch")
    path = Path(os.fspath(filepath)).expanduser()
    figure.savefig(path, dpi=110)
    return path


def _metrics(history: Any) -> dict[str, dict[str, Sequence[float]]]:
    """Name of a metric → `"training"` and `"validation"` → its values."""
    values = getattr(history, "history", history)
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            f"Expected what `fit()` returned, with a value for each epoch. Received: {history!r}. "
            'Use `plot_history(parallel.fit(x, y), "history.png")`.'
        )
    names = [name for name in values if not name.startswith("val_")] or [name.removeprefix("val_") for name in values]
    kinds = {"training": "", "validation": "val_"}
    return {
        name: {kind: values[prefix + name] for kind, prefix in kinds.items() if prefix + name in values}
        for name in names
    }


def _epochs(values: Sequence[float], trained: Sequence[float]) -> list[int]:
    """At which epochs the values were taken: with `validation_freq` some are left out."""
    every = max(len(trained) // max(len(values), 1), 1)
    return [every * (number + 1) for number in range(len(values))]
