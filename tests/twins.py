"""Twins: a model on one device and a parallel model that starts with the same weights, and how they are compared."""

from collections.abc import Callable

import keras
import numpy as np

from multigpu import multi_gpu_model

RTOL, ATOL = 1e-4, 1e-5


def make_twins(build: Callable[[], keras.Model], gpus: object = 3, **kwargs) -> tuple[keras.Model, keras.Model]:
    """One model as it is, and one spread over devices, both compiled if `build` compiles."""
    one, template = build(), build()
    template.set_weights(one.get_weights())
    return one, multi_gpu_model(template, gpus=gpus, **kwargs)


def assert_same(actual, expected) -> None:
    """Nested structures of numbers are equal to float tolerance."""
    keras.tree.assert_same_structure(actual, expected)
    for a, e in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=RTOL, atol=ATOL)


def assert_same_weights(model: keras.Model, other: keras.Model) -> None:
    """Both models have the same weights, moving averages included, and not one of them is a NaN."""
    assert_same(model.get_weights(), other.get_weights())
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def dense_net(**compile_kwargs) -> keras.Model:
    """A small compiled classifier of 5 features into 3 classes."""
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    defaults = {"optimizer": keras.optimizers.Adam(0.05), "loss": "sparse_categorical_crossentropy"}
    model.compile(**{**defaults, "metrics": ["accuracy"], **compile_kwargs})
    return model


def dense_data(num_rows: int = 22) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes for `dense_net`; 22 rows in batches of 8 leave an uneven last batch."""
    random = np.random.default_rng(0)
    return random.normal(size=(num_rows, 5)).astype("float32"), random.integers(0, 3, num_rows)
