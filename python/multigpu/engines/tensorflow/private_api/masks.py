"""Keras' masks, which are attributes of tensors that every op loses. Keras has no public way to read them."""

import tensorflow as tf


def mask_of(x: object) -> tf.Tensor | None:
    """Return the mask that Keras attached to `x`."""
    return getattr(x, "_keras_mask", None)


def with_mask(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return `x` with a mask, which Keras' losses and layers see."""
    if mask is not None:
        x._keras_mask = mask
    return x
