"""MiniGoogLeNet on CIFAR-10, one device against several: seconds per epoch, speed-up, accuracy.

The network, its batches of 64 rows per device and its learning rate are those of a tutorial for the old function
(A. Rosebrock, "How-To: Multi-GPU training with Keras, Python, and deep learning", 2017), whose times on four GPUs of
2017 stand beside ours. Where CIFAR-10 cannot be had, the 1,797 handwritten digits of scikit-learn, scaled up from 8 × 8
pixels, take its place. These are few steps: so the moving statistics of BatchNormalization keep 90 % in a step, where
the tutorial has 99 %.

Run `python bench/speed/minigooglenet.py`; on a machine with GPUs `--rows 50000 --epochs 70` is the whole training. The
devices are those that there are; without GPUs the CPU is split, which cannot be faster than the whole.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import time
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

import multigpu
from bench.lib import plots
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script

REPLICAS, EPOCHS, ROWS = 4, 20, 1024  # what a machine without GPUs does in a few minutes
PER_DEVICE, RATE = 64, 5e-3
PUBLISHED = (63.0, 16.0)  # seconds per epoch on one V100 and on four

MOMENTUM = 0.9  # of moving statistics: after n steps they still have 0.9ⁿ of what they were made with


def convolution(x: keras.KerasTensor, filters: int, size: int, strides: int = 1, padding: str = "same"):
    x = layers.Conv2D(filters, size, strides=strides, padding=padding)(x)
    return layers.Activation("relu")(layers.BatchNormalization(momentum=MOMENTUM)(x))


def inception(x: keras.KerasTensor, ones: int, threes: int):
    return layers.concatenate([convolution(x, ones, 1), convolution(x, threes, 3)])


def downsample(x: keras.KerasTensor, filters: int):
    return layers.concatenate([convolution(x, filters, 3, 2, "valid"), layers.MaxPooling2D(3, 2)(x)])


def minigooglenet() -> keras.Model:
    """About 1.6 million parameters, for images of 32 × 32 × 3."""
    inputs = keras.Input((32, 32, 3))
    x = convolution(inputs, 96, 3)
    x = downsample(inception(inception(x, 32, 32), 32, 48), 80)
    for ones, threes in ((112, 48), (96, 64), (80, 80), (48, 96)):
        x = inception(x, ones, threes)
    x = inception(inception(downsample(x, 96), 176, 160), 176, 160)
    x = layers.Dropout(0.5)(layers.Flatten()(layers.AveragePooling2D(7)(x)))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def images(num_rows: int) -> tuple[str, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Name, training and validation data: CIFAR-10, or handwritten digits, a fifth of them for validation."""
    try:
        train, validation = keras.datasets.cifar10.load_data()
        name = "CIFAR-10"
    except Exception as error:  # Keras raises nothing more special where a file cannot be fetched
        print(f"handwritten digits instead of CIFAR-10: {error}", file=sys.stderr)
        digits = load_digits()
        x = np.kron(digits.images[..., None] * (255 / 16), np.ones((4, 4, 3)))
        fifth = len(x) // 5
        train, validation = (x[:-fifth], digits.target[:-fifth]), (x[-fifth:], digits.target[-fifth:])
        name = "handwritten digits"
    mean = train[0].mean(axis=0)
    scaled = [(((x - mean) / 255).astype("float32")[:num_rows], y.ravel()[:num_rows]) for x, y in (train, validation)]
    return name, scaled[0], scaled[1]


class Clock(keras.callbacks.Callback):
    """Seconds of each epoch's training, without its validation."""

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Forgets earlier ones."""
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts."""
        self._begin = time.perf_counter()

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Stops."""
        self.seconds.append(time.perf_counter() - self._begin)


def measure(strategy: str, num_replicas: int, epochs: int, num_rows: int) -> dict:
    """Seconds and accuracies of each epoch."""
    multigpu.simulate_gpus(num_replicas)
    keras.utils.set_random_seed(0)
    model = minigooglenet()
    if strategy == "multigpu":
        model = multigpu.multi_gpu_model(model, gpus=num_replicas)
    model.compile(keras.optimizers.SGD(RATE, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    name, train, validation = images(num_rows)
    clock = Clock()
    decay = keras.callbacks.LearningRateScheduler(lambda epoch: RATE * (1 - epoch / epochs))
    batch_size = PER_DEVICE * (num_replicas if strategy == "multigpu" else 1)
    fit = model.fit(*train, batch_size, epochs, verbose=0, callbacks=[clock, decay], validation_data=validation)
    accuracy = {"training": fit.history["accuracy"], "validation": fit.history["val_accuracy"]}
    return {
        "data": name,
        "batch": batch_size,
        "seconds": clock.seconds,
        "accuracy": accuracy,
    }


def rows(num_replicas: int = REPLICAS, epochs: int = EPOCHS, num_rows: int = ROWS) -> Iterator[dict]:
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    num_replicas = num_gpus if num_gpus > 1 else num_replicas
    for strategy in ("one device", "multigpu"):
        numbers = {"num_replicas": num_replicas, "epochs": epochs, "num_rows": num_rows}
        yield {"strategy": strategy, "N": num_replicas, **in_own_process(__file__, strategy=strategy, **numbers)}


def table(rows: list[dict]) -> str:
    """One device, several, and the published times."""
    head = ["strategy", "batch", "data", "s per epoch", "speed-up", "accuracy in the end: training", "validation"]
    medians = [plots.seconds_per_epoch(row) for row in rows]
    lines = [
        [
            f"{row['N']} devices" if row["strategy"] == "multigpu" else row["strategy"],
            row["batch"],
            row["data"],
            f"{seconds:.1f}",
            f"{medians[0] / seconds:.2f}",
            *(f"{accuracies[-1]:.3f}" for accuracies in row["accuracy"].values()),
        ]
        for row, seconds in zip(rows, medians, strict=True)
    ]
    one, four = PUBLISHED
    published = [
        "published, 1 and 4 V100",
        "64, 256",
        "CIFAR-10",
        f"{one:.0f}, {four:.0f}",
        f"{one / four:.2f}",
        "–",
        "–",
    ]
    return markdown_table(head, [*lines, published])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=REPLICAS, help=f"devices, where there are no GPUs ({REPLICAS})")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"epochs ({EPOCHS})")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"images, of 50,000 ({ROWS})")
    parser.add_argument("--plot", help="file for the picture, such as curve.png")
    arguments = parser.parse_args()
    measured = list(rows(arguments.replicas, arguments.epochs, arguments.rows))
    print(table(measured))
    if arguments.plot:
        with plots.plt.rc_context(plots.STYLE):
            plots.minigooglenet(measured).savefig(arguments.plot, dpi=110)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, rows, table)
    else:
        main()
