"""Masks and logits, which Keras attaches to tensors as attributes. Any other op loses them."""

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.attached import Attach, logits_found, mask_of, with_mask


def masks_and_logits_of(x: object) -> list[tuple[tf.Tensor, Attach]]:
    """Return the attributes of a tensor, with a function to attach each. Logits are first: they may be a new tensor."""
    logits, mask = logits_found(x), mask_of(x)
    return [*([] if logits is None else [logits]), *([] if mask is None else [(mask, with_mask)])]


def with_all_attached(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Return tensors, each with the masks and logits that are attached to it behind it."""
    return [each for x in tensors for each in (x, *(attached for attached, _ in masks_and_logits_of(x)))]


def with_same_attached(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Return `function(x)`, to which the same function of the masks and logits of `x` is attached."""
    result = function(x)
    for each, attach in masks_and_logits_of(x):
        result = attach(result, function(each))
    return result


class MasksAndLogits:
    """The masks and logits of a flat list of tensors, which can be attached to another list.

    It keeps no tensor. Its `repr()` is the same for the same attributes in the same places.
    """

    def __init__(self, flat: Sequence[object]) -> None:
        self._attach = [(place, attach) for place, x in enumerate(flat) for _, attach in masks_and_logits_of(x)]

    def __len__(self) -> int:
        return len(self._attach)

    def __repr__(self) -> str:
        return repr([(place, attach.__name__) for place, attach in self._attach])

    @property
    def with_logits(self) -> set[int]:
        """Places of the tensors that have logits."""
        return {place for place, attach in self._attach if attach is not with_mask}

    def of(self, flat: Sequence[object]) -> list[tf.Tensor]:
        """Return the masks and logits of such a list."""
        return [each for x in flat for each, _ in masks_and_logits_of(x)]

    def attached(self, flat: Sequence[object], attributes: Sequence[tf.Tensor]) -> list:
        """Return another list with these masks and logits: the inverse of `of()`."""
        again = list(flat)
        for (place, attach), each in zip(self._attach, attributes, strict=True):
            again[place] = attach(again[place], each)
        return again
