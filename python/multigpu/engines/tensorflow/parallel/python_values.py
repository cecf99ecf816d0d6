"""Python values on which a trace depends: those of layers, such as a rate or an activation, and numbers in calls."""

import functools
import types
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.batches.call_arguments import PLAIN
from multigpu.engines.tensorflow.private_api.gradients import is_watched
from multigpu.private_api.layers import sublayers

KINDS = (*PLAIN, types.FunctionType, types.BuiltinFunctionType, tf.Tensor, np.ndarray)


def python_values(template: keras.Layer) -> list[Any]:
    """Return the values of the layers' own attributes that are numbers, strings, functions or tensors."""
    layers, of_keras = (template, *sublayers(template)), _attributes_of_keras()
    attributes = (item for layer in layers for item in vars(layer).items())
    return [value for name, value in attributes if name not in of_keras and isinstance(value, KINDS)]


def are_same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """Return whether two lists have the same objects, or equal numbers and strings."""
    return len(before) == len(now) and all(map(_is_same, before, now))


def is_number(x: Any) -> bool:
    """Return whether a tensor is one known number whose gradient no tape takes."""
    is_known = tf.is_tensor(x) and hasattr(x, "numpy") and x.shape.rank == 0
    return is_known and (x.dtype.is_integer or x.dtype.is_floating) and not is_watched(x)


def as_number(x: Any) -> Any:
    """Return the number of such a tensor, or any other argument itself."""
    return x.numpy().item() if is_number(x) else x


def _is_same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) and isinstance(now, PLAIN) and before == now)


@functools.cache
def _attributes_of_keras() -> frozenset[str]:
    """Return the attributes that any layer or model has. Keras changes them by itself, such as `built`."""
    return frozenset(vars(keras.layers.Layer(name="any"))) | frozenset(vars(keras.Model(name="any")))
