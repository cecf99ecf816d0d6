"""A history is drawn into a file, on machines without a display, and without leaving anything behind."""

import os
import subprocess
import sys

import pytest
from equality import dense_model, random_rows
from forked_python import python
from IPython.core.formatters import DisplayFormatter
from matplotlib.axes import Axes

from multigpu import multi_gpu_model, plot_history

PNG = b"\x89PNG\r\n\x1a\n"


def test_what_fit_returns_is_drawn_with_a_panel_per_metric(tmp_path):
    parallel = multi_gpu_model(dense_model(), gpus=2)
    parallel.compile("sgd", "mse", metrics=["mae"])
    x, y = random_rows(12, 3), random_rows(12, 2)
    history = parallel.fit(x, y, epochs=3, validation_data=(x, y), verbose=0)
    picture = plot_history(history, tmp_path / "history.svg")
    assert picture == tmp_path / "history.svg"
    text = picture.read_text()
    for word in ("loss", "mae", "epoch", "training", "validation"):
        assert f"<!-- {word} -->" in text
    assert plot_history(history.history, str(tmp_path / "history.png")).read_bytes().startswith(PNG)


def test_values_stand_at_the_epochs_at_which_they_were_taken(tmp_path, monkeypatch):
    drawn, plot = [], Axes.plot

    def noted(self, epochs, values, *style, **kwargs):
        drawn.append((list(epochs), list(values)))
        return plot(self, epochs, values, *style, **kwargs)

    monkeypatch.setattr(Axes, "plot", noted)
    plot_history({"loss": [4.0, 3.0, 2.0], "val_loss": [5.0, 4.0, 3.0]}, tmp_path / "every.png")
    plot_history({"loss": [4.0, 3.0, 2.0, 1.0], "val_loss": [5.0, 4.0]}, tmp_path / "second.png")
    assert drawn == [
        ([1, 2, 3], [4, 3, 2]),
        ([1, 2, 3], [5, 4, 3]),
        ([1, 2, 3, 4], [4, 3, 2, 1]),
        ([2, 4], [5, 4]),
    ]


def test_a_notebook_shows_the_figure_of_a_history_that_goes_into_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown, _ = DisplayFormatter().format(plot_history({"loss": [3.0, 2.0]}))
    assert shown["image/png"].startswith(PNG)
    assert not list(tmp_path.iterdir())


WITHOUT_DISPLAY = """
import multigpu
picture = multigpu.plot_history({"loss": [3.0, 2.0, 1.0, 0.5], "val_loss": [3.5, 2.5]}, "history.png")
from matplotlib import pyplot
print(picture.stat().st_size > 5000, len(pyplot.get_fignums()))
"""


def test_no_display_is_needed_and_pyplot_is_not_touched(tmp_path):
    environment = {**{name: os.environ[name] for name in os.environ if name != "DISPLAY"}, "MPLBACKEND": "TkAgg"}
    done = subprocess.run(
        [*python(), "-c", WITHOUT_DISPLAY],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout.split() == ["True", "0"]


def test_without_matplotlib_one_command_is_named(monkeypatch, tmp_path):
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as error:
        plot_history({"loss": [1.0]}, tmp_path / "history.png")
    assert str(error.value) == (
        "Expected matplotlib, which draws the picture. Received: a Python without it. "
        "Install it with `pip install matplotlib`."
    )


@pytest.mark.parametrize("history", [{}, None, [1.0]])
def test_what_is_no_history_is_refused(history, tmp_path):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        plot_history(history, tmp_path / "history.png")
    assert str(error.value) == (
        "Expected `history` to be the return value of `fit()`, with a value for each epoch. Received: "
        f"history={history!r}. "
        'Use `plot_history(parallel.fit(x, y), "history.png")`.'
    )
