"""Compute the divisor of a masked loss of Keras, which has no public name."""

from keras.src.losses.loss import apply_mask as apply_mask
