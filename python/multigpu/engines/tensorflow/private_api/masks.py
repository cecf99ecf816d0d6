"""Keras' masks, which ride on tensors as an attribute and are lost by every op. Keras exports no way to take them."""

import tensorflow as tf


def mask_of(x: object) -> tf.Tensor | None:
    """The mask that Keras attached to `x`."""
    return getattr(x, "_keras_mask", None)


def with_mask(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """`x`, masked: Keras' losses and layers see the mask."""
    if mask is not None:
        x._keras_mask = mask
    return x
