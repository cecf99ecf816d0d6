"""Trains a small network for handwritten digits on four GPUs, real or simulated, and saves it."""

import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import multigpu


def build_model() -> keras.Model:
    """A small convolutional network: 8 × 8 pixels → 10 digits."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> int:
    multigpu.simulate_gpus(4)  # leave this line out on a machine with GPUs
    keras.utils.set_random_seed(0)
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32")
    x, x_test, y, y_test = train_test_split(images, digits, test_size=0.25, random_state=0, stratify=digits)

    model = build_model()
    parallel = multigpu.multi_gpu_model(model, gpus=4)
    parallel.compile(keras.optimizers.Adam(0.003), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    parallel.summary()
    parallel.fit(x, y, batch_size=64, epochs=20)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.keras"
        model.save(file)  # the template: a plain Keras file, without a trace of the GPUs
        reloaded = keras.models.load_model(file)

    print("Accuracy on held-out digits:")
    models = {"parallel, 4 devices": parallel, "template, 1 device": model, "reloaded file": reloaded}
    accuracies = [print_accuracy(name, each, x_test, y_test) for name, each in models.items()]
    agree = len(set(accuracies)) == 1
    return 0 if agree and accuracies[0] >= 0.97 else 1


def print_accuracy(name: str, model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    accuracy = model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"]
    print(f"  {name:20} {accuracy:.2%}")
    return accuracy


if __name__ == "__main__":
    sys.exit(main())
