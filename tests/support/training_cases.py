"""Trainings whose numbers must be the same on several devices, and on several workers, as on one device."""

from collections.abc import Callable
from typing import Any

import added_losses
import keras
import numpy as np
from added_losses import Adds
from equality import dense_model, measured, random_ids, random_rows
from keras import ops
from optimizer_cases import COMMON, OTHERS, rising_model, rising_rows

X, Y = random_rows(25, 3), random_rows(25, 2, seed=1)  # batches of 8, 8, 8 and 1: then all workers but one stand by
WEIGHTS = np.linspace(0, 2, 25).astype("float32")
IDS = random_ids(25, 6, below=9)


def compiled(
    loss: Any = "mse", optimizer: Callable[[], Any] = lambda: keras.optimizers.SGD(0.1), **more: Any
) -> Callable:
    """What `compile()` takes, made anew for each training."""
    made = {"optimizer": optimizer, "loss": loss, **more}
    return lambda: {name: value() if callable(value) else value for name, value in made.items()}


def layers_that_add_losses() -> keras.Model:
    inputs = keras.Input((3,))
    x = keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2")(inputs)
    x = Adds(lambda x, w: ops.mean(ops.square(x)))(x)
    x = Adds(lambda x, w: 0.01 * ops.sum(ops.square(x)))(x)
    return keras.Model(inputs, keras.layers.Dense(2, activity_regularizer="l1")(x))


def masked_sequences() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.SimpleRNN(3, return_sequences=True)(x)))


def large_table() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(70_000, 4)(inputs)  # 1.1 MB: only rows of it travel
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def two_outputs() -> keras.Model:
    left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
    x = keras.layers.Concatenate()([left, right])
    outputs = {"a": keras.layers.Dense(2, name="a")(x), "b": keras.layers.Dense(2, activation="sigmoid", name="b")(x)}
    return keras.Model({"left": left, "right": right}, outputs)


class Counts(keras.layers.Layer):
    """Keeps a sum over rows, and a number of calls."""

    def build(self, shape):
        self.rows = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x):
        self.rows.assign_add(ops.cast(ops.shape(x)[0], "float32"))
        self.calls.assign_add(1)
        return x


def counting() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), Counts(), keras.layers.Dense(2)])


class Scaled(keras.Model):
    """Prepares what its verbs are given, and steps by itself."""

    def __init__(self):
        super().__init__()
        self.dense, self.scale = keras.layers.Dense(2), 0.5
        self(X)

    def call(self, x):
        return self.dense(x)

    def fit(self, x, *args, **kwargs):
        return super().fit(x * self.scale, *args, **kwargs)

    def evaluate(self, x, *args, **kwargs):
        return super().evaluate(x if kwargs.get("_use_cached_eval_dataset") else x * self.scale, *args, **kwargs)

    def predict(self, x, **kwargs):
        return super().predict(x * self.scale, **kwargs)

    def compute_loss(self, *args, **kwargs):
        return self.scale * super().compute_loss(*args, **kwargs)


class Extremes(keras.metrics.Metric):
    """The largest and the smallest of the mean errors of a row's values: a result of two numbers."""

    def __init__(self):
        super().__init__()
        self.rows = self.add_weight(initializer="zeros")
        self.errors = self.add_weight(shape=(2,), initializer="zeros")

    def update_state(self, y, predicted, sample_weight=None):
        self.rows.assign_add(ops.cast(ops.shape(y)[0], "float32"))
        self.errors.assign_add(ops.sum(ops.abs(y - predicted), axis=0))

    def result(self):
        return {"largest": ops.max(self.errors) / self.rows, "smallest": ops.min(self.errors) / self.rows}


def root_of_the_mean(y, predicted):
    assert predicted.shape[1:] == (2,)  # known while it is traced, as on one device
    return ops.sqrt(ops.mean(ops.square(y - predicted)))


def certain() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="sigmoid")])


def mean_crossentropy(y, predicted):
    return ops.mean(ops.binary_crossentropy(ops.cast(y, "float32"), predicted))


def error_of_the_first_row(y, predicted):
    return ops.mean(ops.square(ops.take(y, [0], axis=0) - ops.take(predicted, [0], axis=0)))


def largest_error(y, predicted):
    return ops.max(ops.abs(y - predicted))


def error_above(y, predicted):
    above = ops.cast(y > 0, predicted.dtype)
    return ops.sum(ops.square(y - predicted) * above) / ops.sum(above)


def training(build: Callable = dense_model, x: Any = X, y: Any = Y, compile: Callable = measured, **fit: Any) -> dict:
    return {"build": build, "x": x, "y": y, "compile": compile, **fit}


STEPS_Y = random_rows(25, 6, 2, seed=2)
TRAININGS: dict[str, dict[str, Any]] = {
    "validation": training(validation_split=0.3, epochs=2, only_fit=True),
    "sample weights": training(sample_weight=WEIGHTS),
    "a mean over sample weights as loss": training(
        compile=compiled(lambda: keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")),
        sample_weight=WEIGHTS,
        only_fit=True,
    ),
    "a sum as loss": training(
        compile=compiled(lambda: keras.losses.MeanSquaredError(reduction="sum"), metrics=["mae"]), only_fit=True
    ),
    "added losses": training(layers_that_add_losses, only_fit=True),
    "masks": training(masked_sequences, IDS, STEPS_Y, compiled(metrics=["mae"])),
    "clipped, with a large table": training(
        large_table,
        IDS,
        compile=compiled(optimizer=lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1)),
        only_fit=True,
    ),
    "several inputs and outputs": training(
        two_outputs,
        {"left": X, "right": X[::-1].copy()},
        {"a": Y, "b": (Y > 0).astype("float32")},
        compiled({"a": "mse", "b": "binary_crossentropy"}, loss_weights={"a": 1.0, "b": 0.3}, metrics={"b": ["auc"]}),
    ),
    "metrics that are objects": training(
        compile=compiled(metrics=lambda: [keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score(), Extremes()])
    ),
    "weights of classes": training(
        y=(Y[:, 0] > 0).astype("int32"),
        compile=compiled(
            lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            weighted_metrics=lambda: [keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        ),
        class_weight={0: 1.0, 1: 3.0},
        only_fit=True,
    ),
    "gradients of two steps": training(
        compile=compiled(optimizer=lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)), only_fit=True
    ),
    "several steps in one": training(compile=compiled(steps_per_execution=2), only_fit=True),
    "eagerly": training(compile=compiled(run_eagerly=True)),
    "state of layers": training(counting, only_fit=True),
    "losses behind masks": training(added_losses.behind_masks, IDS, only_fit=True),
    "losses of the template": training(added_losses.in_the_template, only_fit=True),
    "losses of inner layers, eagerly": training(
        added_losses.of_inner_layers_without_rows, compile=compiled(run_eagerly=True)
    ),
    "functions that give one number": training(compile=compiled(lambda: root_of_the_mean, metrics=[largest_error])),
    "functions that give one number, of logits": training(
        certain, 60 * X, Y > 0, compiled(lambda: mean_crossentropy), only_fit=True
    ),
    "functions that take one row": training(compile=compiled(lambda: error_of_the_first_row), only_fit=True),
    "a mean of some values, weighted": training(
        compile=compiled(lambda: error_above), sample_weight=WEIGHTS, only_fit=True
    ),
    "verbs of the class's own": training(Scaled, validation_split=0.3),
}
OPTIMIZERS = {
    f"{name} {arguments}": training(
        rising_model,
        *rising_rows(),
        compiled(optimizer=lambda name=name, arguments=arguments: getattr(keras.optimizers, name)(**arguments)),
        only_fit=True,
    )
    for name, arguments in [*COMMON, *OTHERS]
}
