"""The optimizers of Keras, and a model and rows on which each of them can be compared to float tolerance."""

import keras
import numpy as np
from equality import random_rows

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows


def rising_model(use_bias: bool = True, output_dtype: str | None = None) -> keras.Model:
    """2 numbers → 1 number, with weights of one sign, so that no gradient is near zero on `rising_rows`.

    Optimizers that divide a gradient by its own size, or take its sign, would turn rounding errors of a gradient near
    zero into whole steps.
    """
    above_zero = keras.initializers.RandomUniform(0.2, 0.8)
    hidden = keras.layers.Dense(3, activation="sigmoid", kernel_initializer=above_zero, use_bias=use_bias)
    output = keras.layers.Dense(1, kernel_initializer=above_zero, dtype=output_dtype)
    return keras.Sequential([keras.Input((2,)), hidden, output])


def rising_rows(target: float = 5) -> tuple[np.ndarray, np.ndarray]:
    """Inputs above zero, and targets above what the model gives, which starts at about 1."""
    return np.abs(random_rows(ROWS, 2)) + 0.2, np.full((ROWS, 1), target, "float32")


# To an update, the number of devices matters through the sum over the replicas, and through which weight is where. Two
# common optimizers meet 3 and 8 devices. The others meet 3: slices of 3, 3 and 2 rows, and one device that stands by
# when 2 rows are left. `make soak` has every pair.
COMMON = [
    ("SGD", {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
]
OTHERS = [
    ("SGD", {"learning_rate": 0.05}),
    ("RMSprop", {"learning_rate": 0.01, "centered": True, "momentum": 0.5}),
    ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("Adagrad", {"learning_rate": 0.1}),
    ("Adadelta", {"learning_rate": 1.0}),
    ("Adafactor", {"learning_rate": 0.05}),
    ("Adamax", {"learning_rate": 0.01}),
    ("Nadam", {"learning_rate": 0.01}),
    ("Lion", {"learning_rate": 0.01}),
    ("Lamb", {"learning_rate": 0.01}),
    ("Ftrl", {"learning_rate": 0.1, "l1_regularization_strength": 0.01}),
    ("Muon", {"learning_rate": 0.01}),
]
