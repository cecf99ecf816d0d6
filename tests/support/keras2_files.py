"""Files as the old `multi_gpu_model` and Keras 2 wrote them: the given ones, and more made with h5py."""

from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import keras
import numpy as np

OLD = Path(__file__).parents[1] / "fixtures" / "old-parallel"


def old_weights(name: str) -> list[np.ndarray]:
    """The template's weights of a given file, in the order of `get_weights()`."""
    with np.load(OLD / f"{name}-template-weights.npz") as arrays:
        return [arrays[f"w{index}"] for index in range(len(arrays.files))]


def cnn() -> keras.Model:
    """The template of the `cnn` files, under names of Keras' own."""
    layers = keras.layers
    image = keras.Input((8, 8, 1))
    normal = layers.BatchNormalization()(layers.Conv2D(4, 3, activation="relu")(image))
    return keras.Model(image, layers.Dense(10, activation="softmax")(layers.Flatten()(normal)))


def seq() -> keras.Model:
    """The template of the `seq` files, under names of Keras' own."""
    return keras.Sequential([keras.Input((10,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])


TEMPLATES: dict[str, Callable[[], keras.Model]] = {"cnn": cnn, "seq": seq}


def write_listed(group: h5py.Group, layers: dict[str, list[tuple[str, np.ndarray]]]) -> None:
    """Weights by layer, as Keras 2 listed them."""
    group.attrs["layer_names"] = np.array([name.encode() for name in layers])
    group.attrs["backend"], group.attrs["keras_version"] = "tensorflow", "2.3.1"
    for name, weights in layers.items():
        inner = group.create_group(name)
        inner.attrs["weight_names"] = np.array([weight.encode() for weight, _ in weights])
        for weight, value in weights:
            inner[weight] = value


def wrapped(template: keras.Model, names: Sequence[str], num_inputs: int = 1, gpus: int = 2) -> dict[str, list]:
    """The layers of an old parallel model: inputs, one Lambda per GPU and input, the template, and merged outputs.

    Args:
        template: gives the values.
        names: names of the weights in the file, in the order in which Keras 2 listed them: the trainable ones first.
        num_inputs: of the template.
        gpus: devices of the old parallel model.
    """
    values = [weight.numpy() for weight in [*template.trainable_weights, *template.non_trainable_weights]]
    lambdas = ["lambda", *(f"lambda_{index}" for index in range(1, num_inputs * gpus))]
    return {
        **{f"input_{index + 1}": [] for index in range(num_inputs)},
        **{name: [] for name in lambdas},
        "model_1": list(zip(names, values, strict=True)),
        "dense_1": [],
    }
