"""Arrays as Keras takes them: their types, and the weights of their rows."""

import keras
import numpy as np


def kept_type(array: np.ndarray) -> np.dtype:
    """The type in which Keras passes an array on: floats in its own float type, all else as it is.

    It has this machine's byte order: TensorFlow takes the bytes of an array as they are.
    """
    return np.dtype(keras.config.floatx()) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")


def row_weights(y: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """The weight of each row: that of its class, or 1."""
    classes = y if y.ndim == 1 else y[..., 0] if y.shape[-1] == 1 else np.argmax(y, axis=-1)
    weights = [class_weight.get(int(each), 1.0) for each in np.round(classes)]
    return np.asarray(weights, keras.config.floatx())
