"""Keras' logits, of which it takes a crossentropy rather than of probabilities, which it would have to clip.

They ride on the probabilities as an attribute, or else are found behind the op; both are lost by every other op.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Attach = Callable[[Any, tf.Tensor], tf.Tensor]


def logits_of(x: object) -> tf.Tensor | None:
    """The logits that Keras attached to `x`."""
    return getattr(x, "_keras_logits", None)


def with_logits(x: tf.Tensor, logits: tf.Tensor | None) -> tf.Tensor:
    """`x`, of which Keras takes a crossentropy by its logits."""
    if logits is not None:
        x._keras_logits = logits
    return x


def with_softmax(_: object, logits: tf.Tensor) -> tf.Tensor:
    """The probabilities of which Keras finds these logits behind the op."""
    return tf.nn.softmax(logits)


def with_sigmoid(_: object, logits: tf.Tensor) -> tf.Tensor:
    """Likewise."""
    return tf.nn.sigmoid(logits)


OPS = {"Softmax": with_softmax, "Sigmoid": with_sigmoid}  # behind which Keras looks where there is no attribute


def logits_found(x: object) -> tuple[tf.Tensor, Attach] | None:
    """The logits by which Keras would take a crossentropy of `x`; and what makes it find those of another tensor."""
    if logits_of(x) is not None:
        return logits_of(x), with_logits
    op = getattr(x, "op", None) if isinstance(x, tf.Tensor) else None  # an eager tensor has none
    return (op.inputs[0], OPS[op.type]) if op is not None and op.type in OPS else None
