"""Convert arrays as Keras does: their types, and the weights of their rows."""

import keras
import numpy as np


def kept_type(array: np.ndarray) -> np.dtype:
    """Return the type in which Keras passes an array on: its own float type for floats, the same type for all else.

    The type has this machine's byte order, because TensorFlow does not convert the order of bytes.
    """
    return np.dtype(keras.config.floatx()) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")


def row_weights(y: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """Return the weight of each row: the weight of its class, or 1."""
    classes = y if y.ndim == 1 else y[..., 0] if y.shape[-1] == 1 else np.argmax(y, axis=-1)
    weights = [class_weight.get(int(each), 1.0) for each in np.round(classes)]
    return np.asarray(weights, keras.config.floatx())
