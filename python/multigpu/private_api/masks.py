"""Masks that Keras keeps for arrays. There is no public way to read or set them."""

from typing import Any

from keras.src.backend.common import masking


def mask_of(x: Any) -> Any:
    """Return the mask of an array. None if it has none."""
    return masking.get_keras_mask(x)


def with_mask(x: Any, mask: Any) -> Any:
    """Return an array, which now has this mask."""
    masking.set_keras_mask(x, mask)
    return x
