"""Python values of a template's layers, such as a rate or an activation, which a trace keeps as they were."""

import functools
import types
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.private_api.layers import sublayers

PLAIN = (bool, int, float, str, type(None))
KINDS = (*PLAIN, types.FunctionType, types.BuiltinFunctionType, tf.Tensor, np.ndarray)


def python_values(template: keras.Layer) -> list[Any]:
    """Return the values of the layers' own attributes that are numbers, strings, functions or tensors."""
    layers, of_keras = (template, *sublayers(template)), _attributes_of_keras()
    attributes = (item for layer in layers for item in vars(layer).items())
    return [value for name, value in attributes if name not in of_keras and isinstance(value, KINDS)]


def are_same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """Return whether two lists have the same objects, or equal numbers and strings."""
    return len(before) == len(now) and all(map(_is_same, before, now))


def _is_same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) and isinstance(now, PLAIN) and before == now)


@functools.cache
def _attributes_of_keras() -> frozenset[str]:
    """Return the attributes that any layer or model has. Keras changes them by itself, such as `built`."""
    return frozenset(vars(keras.layers.Layer(name="any"))) | frozenset(vars(keras.Model(name="any")))
