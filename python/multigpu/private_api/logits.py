"""Keras' logits, of which it takes a crossentropy rather than of probabilities, which it would have to clip.

They ride on the probabilities as an attribute, or else are found behind the op; both are lost by every other op.
"""

from collections.abc import Callable

import tensorflow as tf

OPS = {"Softmax": tf.nn.softmax, "Sigmoid": tf.nn.sigmoid}  # behind which Keras looks where there is no attribute
Attach = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def logits_of(x: object) -> tf.Tensor | None:
    """The logits that Keras attached to `x`."""
    return getattr(x, "_keras_logits", None)


def with_logits(x: tf.Tensor, logits: tf.Tensor | None) -> tf.Tensor:
    """`x`, of which Keras takes a crossentropy by its logits."""
    if logits is not None:
        x._keras_logits = logits
    return x


def logits_found(x: object) -> tuple[tf.Tensor, Attach] | None:
    """The logits by which Keras would take a crossentropy of `x`; and what makes it find those of another tensor."""
    if logits_of(x) is not None:
        return logits_of(x), with_logits
    op = getattr(x, "op", None) if isinstance(x, tf.Tensor) else None  # an eager tensor has none
    return (op.inputs[0], lambda _, logits: OPS[op.type](logits)) if op is not None and op.type in OPS else None
