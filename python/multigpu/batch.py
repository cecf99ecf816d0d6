"""One call's arguments, taken apart into the tensors that have rows and the rest."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.masks import mask_of, with_mask


class Batch:
    """The arguments of a call, as a flat list of tensors with rows, and the way back for any slice of them.

    Masks that ride on the inputs are sliced with them. Composite tensors (ragged, sparse) count as one.
    """

    def __init__(self, args: tuple, kwargs: dict[str, Any]):
        self._structure = (args, kwargs)
        self._flat = [_as_tensor(leaf) for leaf in keras.tree.flatten(self._structure)]
        self._with_rows = [position for position, leaf in enumerate(self._flat) if _has_rows(leaf)]
        self._masked = [position for position in self._with_rows if mask_of(self._flat[position]) is not None]
        if not self._with_rows:
            raise ValueError(
                "Expected a batch: at least one input tensor with rows. "
                f"Received: args={args}, kwargs={kwargs}. Pass arrays or tensors whose first axis is the batch."
            )

    @property
    def tensors(self) -> list[tf.Tensor]:
        """Inputs with rows, then the masks that ride on them."""
        inputs = [self._flat[position] for position in self._with_rows]
        return inputs + [mask_of(self._flat[position]) for position in self._masked]

    @property
    def training(self) -> bool | None:
        """Whether the call says that it trains; None where it does not say."""
        return self._structure[1].get("training")

    def rebuild(self, tensors: list[tf.Tensor]) -> tuple[tuple, dict[str, Any]]:
        """Arguments like the original ones, with other tensors (a slice's) in their places."""
        flat = list(self._flat)
        for position, tensor in zip(self._with_rows, tensors, strict=False):
            flat[position] = tensor
        for position, mask in zip(self._masked, tensors[len(self._with_rows) :], strict=True):
            flat[position] = with_mask(flat[position], mask)
        return keras.tree.pack_sequence_as(self._structure, flat)


def _as_tensor(leaf: Any) -> Any:
    """Arrays become tensors, as Keras does with the inputs of a layer; flags and None stay what they are."""
    return tf.convert_to_tensor(leaf) if hasattr(leaf, "__array__") and not tf.is_tensor(leaf) else leaf


def _has_rows(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.shape.rank != 0


def flatten_composites(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Dense components of a list of tensors, as functions and gradients take them."""
    return tf.nest.flatten(list(tensors), expand_composites=True)


def restore_composites(like: list[tf.Tensor], components: list[tf.Tensor]) -> list[tf.Tensor]:
    """The inverse of `flatten_composites` for tensors of the types in `like`."""
    return tf.nest.pack_sequence_as(like, components, expand_composites=True)
