"""What larger batches change: handwritten digits with batches of 32 on one device and on eight, and of 256 on eight.

The same global batch gives the same curve on any number of devices. A batch that is eight times as large takes an
eighth of the steps: with the same learning rate it learns less in as many epochs, with eight times the rate ("linear
scaling") some trainings fail, and with a warm-up to that rate they do not. The data come with scikit-learn, the seeds
are fixed. Run `python bench/training/larger_batches.py`, which draws `docs/larger-batches.png`;
`docs/larger-batches.md` explains it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

from collections.abc import Iterator

import keras
import numpy as np
from keras import layers
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import multigpu
from bench.lib import plots
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script

PICTURE = Path(__file__).parents[1] / "docs" / "larger-batches.png"
NUM_DEVICES, EPOCHS, WARM_UP, SEEDS = 8, 20, 10, 5
SHOWN = (1, 5, EPOCHS)
BATCH_SIZE, RATE = 32, 0.02
RUNS = {  # name → devices, batch, rate, epochs of warm-up
    "one device, batch of 32": (1, BATCH_SIZE, RATE, 0),
    "8 devices, batch of 32": (NUM_DEVICES, BATCH_SIZE, RATE, 0),
    "batch of 256, same rate": (NUM_DEVICES, NUM_DEVICES * BATCH_SIZE, RATE, 0),
    "batch of 256, rate × 8": (NUM_DEVICES, NUM_DEVICES * BATCH_SIZE, NUM_DEVICES * RATE, 0),
    "batch of 256, rate × 8, warm-up": (NUM_DEVICES, NUM_DEVICES * BATCH_SIZE, NUM_DEVICES * RATE, WARM_UP),
}


def network() -> keras.Model:
    """8 × 8 pixels → 10 digits."""
    convolutions = [layers.Conv2D(filters, 3, padding="same", activation="relu") for filters in (16, 32)]
    last = [layers.MaxPooling2D(), layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    return keras.Sequential([keras.Input((8, 8, 1)), layers.Rescaling(1 / 16), *convolutions, *last])


def digits() -> list[np.ndarray]:
    """Images and classes: for training, for validation."""
    images, classes = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32")
    x, x_test, y, y_test = train_test_split(images, classes, test_size=0.25, random_state=0, stratify=classes)
    return [x, y, x_test, y_test]


def warmed_up(rate: float, epochs: int) -> keras.callbacks.Callback:
    """Raises the learning rate in equal steps from that of a batch of 32 to the wanted one."""
    start = min(rate, RATE)
    return keras.callbacks.LearningRateScheduler(
        lambda epoch: rate if epoch >= epochs else start + (rate - start) * epoch / epochs
    )


def measure(run: str) -> dict:
    """For each seed, the training loss and the validation accuracy of each epoch."""
    multigpu.simulate_gpus(RUNS[run][0])
    data = digits()
    histories = [train(run, data, seed) for seed in range(SEEDS)]
    return {name: [history[name] for history in histories] for name in ("loss", "val_accuracy")}


def train(run: str, data: list[np.ndarray], seed: int) -> dict[str, list[float]]:
    """The history of one training."""
    num_devices, batch_size, rate, warm_up = RUNS[run]
    keras.utils.set_random_seed(seed)
    model = network()
    if num_devices > 1:
        model = multigpu.multi_gpu_model(model, gpus=num_devices)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=["accuracy"])
    x, y, *validation = data
    keras.utils.set_random_seed(seed)  # the same order of rows in all runs
    warm_up = [warmed_up(rate, warm_up)]
    return model.fit(x, y, batch_size, EPOCHS, 0, warm_up, validation_data=validation).history


def rows() -> Iterator[dict]:
    for run in RUNS:
        yield {"run": run, **in_own_process(__file__, run=run)}


def table(rows: list[dict]) -> str:
    head = ["run", "learning rate", "steps", "training loss in the end", *(f"accuracy, epoch {n}" for n in SHOWN)]
    lines = []
    for row in rows:
        _, batch_size, rate, _ = RUNS[row["run"]]
        steps = EPOCHS * -(-1347 // batch_size)
        losses = [losses[-1] for losses in row["loss"]]
        accuracies = [median_and_range([each[epoch - 1] for each in row["val_accuracy"]], 3) for epoch in SHOWN]
        lines.append([row["run"], f"{rate:g}", steps, median_and_range(losses, 4), *accuracies])
    first, second = (np.array(row["val_accuracy"]) for row in rows[:2])
    apart = f"at most {np.abs(first - second).max():.4f} apart, in any epoch of any seed."
    return f"{markdown_table(head, lines)}\n\nAccuracies of the first two runs are {apart}"


def median_and_range(values: list[float], digits: int) -> str:
    low, middle, high = (f"{value:.{digits}f}" for value in np.quantile(values, (0, 0.5, 1)))
    return f"{middle} ({low} – {high})"


def draw(rows: list[dict]) -> plt.Figure:
    """Median and range of the accuracy; the run on one device is dashed, since another lies on it."""
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for row, color in zip(rows, ("black", "#0b6fb8", "#888888", "#d1622b", "#3a8f4d"), strict=True):
        one = row["run"].startswith("one device")
        style = {"linestyle": (0, (4, 3)), "zorder": 3} if one else {"linewidth": 3 if "8 devices" in row["run"] else 2}
        epochs, accuracies = range(1, EPOCHS + 1), np.array(row["val_accuracy"])
        axis.plot(epochs, np.median(accuracies, axis=0), color=color, label=row["run"], **style)
        axis.fill_between(epochs, accuracies.min(axis=0), accuracies.max(axis=0), color=color, alpha=0.12, linewidth=0)
    axis.set(
        xlabel="epoch",
        ylabel=f"accuracy on held-out digits, {SEEDS} seeds",
        ylim=(0, 1),
        xticks=range(0, EPOCHS + 1, 5),
    )
    axis.legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    measured = list(rows())
    print(table(measured))
    with plt.rc_context(plots.STYLE):
        draw(measured).savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, None, None)
    else:
        main()
