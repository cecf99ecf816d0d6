"""Keras' masks and logits, which are attributes of tensors that every op loses. Keras has no public way to read them.

It computes a crossentropy from logits, because it would have to clip probabilities. They are attached to the
probabilities, or are inputs of the op that made them.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Attach = Callable[[Any, tf.Tensor], tf.Tensor]


def mask_of(x: object) -> tf.Tensor | None:
    """Return the mask that Keras attached to `x`."""
    return getattr(x, "_keras_mask", None)


def with_mask(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return `x` with a mask, which Keras' losses and layers see."""
    if mask is not None:
        x._keras_mask = mask
    return x


def logits_of(x: object) -> tf.Tensor | None:
    """Return the logits that Keras attached to `x`."""
    return getattr(x, "_keras_logits", None)


def with_logits(x: tf.Tensor, logits: tf.Tensor | None) -> tf.Tensor:
    """Return `x` with attached logits, from which Keras computes a crossentropy."""
    if logits is not None:
        x._keras_logits = logits
    return x


def with_softmax(_: object, logits: tf.Tensor) -> tf.Tensor:
    """Return probabilities that have these logits as inputs of their softmax, where Keras finds them."""
    return tf.nn.softmax(logits)


def with_sigmoid(_: object, logits: tf.Tensor) -> tf.Tensor:
    """Return probabilities that have these logits as inputs of their sigmoid, where Keras finds them."""
    return tf.nn.sigmoid(logits)


OPS = {"Softmax": with_softmax, "Sigmoid": with_sigmoid}  # whose inputs Keras uses if there is no attribute


def logits_found(x: object) -> tuple[tf.Tensor, Attach] | None:
    """Return the logits from which Keras would compute a crossentropy of `x`, and a function to attach others."""
    if logits_of(x) is not None:
        return logits_of(x), with_logits
    op = getattr(x, "op", None) if isinstance(x, tf.Tensor) else None  # an eager tensor has no op
    return (op.inputs[0], OPS[op.type]) if op is not None and op.type in OPS else None
