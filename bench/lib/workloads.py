"""What is trained: models, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


def conv_net() -> keras.Model:
    """Six convolutions on 32×32×3 images."""
    blocks = []
    for filters in (32, 64, 128):
        blocks += [keras.layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(2)]
        blocks += [keras.layers.MaxPooling2D()]
    return keras.Sequential([keras.Input((32, 32, 3)), *blocks, keras.layers.Flatten(), keras.layers.Dense(10)])


def mlp() -> keras.Model:
    """Four hidden layers of 1024 units."""
    hidden = [keras.layers.Dense(1024, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((1024,)), *hidden, keras.layers.Dense(10)])


def xception() -> keras.Model:
    """Xception for 71×71×3 images and 1000 classes: 156 trained weights and 80 moving statistics."""
    inputs = keras.Input((71, 71, 3))
    return keras.applications.Xception(weights=None, input_tensor=inputs, classifier_activation=None)


def wide_model() -> keras.Model:
    """A quarter of each side of two very large matrices, 11,000 → 16,384 → 8,192 (tensorflow/tensorflow#103564)."""
    sides = [keras.layers.Dense(size // 4, activation="relu") for size in (16_384, 8_192)]
    dropouts = [keras.layers.Dropout(0.2) for _ in range(2)]
    return keras.Sequential([keras.Input((11_000 // 4,)), dropouts[0], *sides, dropouts[1], keras.layers.Dense(1)])


def tiny_model() -> keras.Model:
    """10 parameters: what is measured with it is everything but the model."""
    return keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])


class Workload(NamedTuple):
    """A model, the shape of one row, and how much to train at a time."""

    build: Callable[[], keras.Model]
    row: tuple[int, ...]
    num_classes: int | None
    batch_size: int
    steps: int

    def arrays(self, steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Random inputs and targets for so many steps."""
        rng, num_rows = np.random.default_rng(0), self.batch_size * (steps or self.steps)
        x = rng.normal(size=(num_rows, *self.row)).astype("float32")
        if self.num_classes is None:
            return x, rng.normal(size=(num_rows, 1)).astype("float32")
        return x, rng.integers(0, self.num_classes, num_rows)

    def batches(self, steps: int | None = None) -> tf.data.Dataset:
        """The same as a dataset that is read from memory."""
        import tensorflow as tf  # which is not there beside JAX

        return tf.data.Dataset.from_tensor_slices(self.arrays(steps)).batch(self.batch_size).cache()

    def compiled(
        self, model: keras.Model, optimizer: Callable[[], keras.Optimizer] | None = None, jit_compile: bool = False
    ) -> keras.Model:
        """The model, compiled the same for all who are compared, with an optimizer made here, in the scope around."""
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if self.num_classes else "mse"
        made = keras.optimizers.SGD(0.01, momentum=0.9) if optimizer is None else optimizer()
        model.compile(optimizer=made, loss=loss, jit_compile=jit_compile)
        return model


WORKLOADS = {
    "conv net": Workload(conv_net, (32, 32, 3), 10, 128, 6),
    "MLP 4×1024": Workload(mlp, (1024,), 10, 256, 12),
    "Xception": Workload(xception, (71, 71, 3), 1000, 16, 3),
    "wide model": Workload(wide_model, (2750,), None, 256, 3),
    "10 parameters": Workload(tiny_model, (9,), None, 32, 200),
}
