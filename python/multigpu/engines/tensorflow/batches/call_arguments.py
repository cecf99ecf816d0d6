"""One call's arguments, taken apart into the tensors that have rows and the rest."""

import copy
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.riders import Riders

PLAIN = (bool, int, float, str, type(None))  # arguments by whose values a call may go


class CallArguments:
    """The arguments of a call, as a flat list of tensors with rows, and the way back for any slice of them.

    Masks and logits that ride on the inputs are sliced with them. Composite tensors (ragged, sparse) count as one.
    """

    def __init__(self, args: tuple, kwargs: dict[str, Any]):
        self._structure = (args, kwargs)
        self._flat = [_as_tensor(leaf) for leaf in keras.tree.flatten(self._structure)]
        self._with_rows = [position for position, leaf in enumerate(self._flat) if _has_rows(leaf)]
        self._riders = Riders(self._inputs)
        self._types = open_types(self.tensors)
        if not self._with_rows:
            raise ValueError(
                "Expected a batch: at least one input tensor with rows. "
                f"Received: args={args}, kwargs={kwargs}. Pass arrays or tensors whose first axis is the batch."
            )

    @property
    def tensors(self) -> list[tf.Tensor]:
        """Inputs with rows, then what rides on them."""
        return [*self._inputs, *self._riders.of(self._inputs)]

    @property
    def _inputs(self) -> list[tf.Tensor]:
        return [self._flat[position] for position in self._with_rows]

    @property
    def scalars(self) -> list[tf.Tensor]:
        """Tensors without an axis, of a function that is being traced; all slices take them as they are."""
        return [leaf for leaf in self._flat if tf.is_symbolic_tensor(leaf) and not _has_rows(leaf)]

    def with_scalars(self, scalars: Sequence[tf.Tensor]) -> "CallArguments":
        """The same arguments with other scalars."""
        others, given = copy.copy(self), iter(scalars)
        others._flat = [
            next(given) if tf.is_symbolic_tensor(leaf) and not _has_rows(leaf) else leaf for leaf in self._flat
        ]
        return others

    @property
    def training(self) -> bool | None:
        """Whether the call says that it trains; None where it does not say."""
        return self._structure[1].get("training")

    @property
    def known_rows(self) -> int | None:
        """How many rows the batch has, None while that is open."""
        return self.tensors[0].shape[0]

    @property
    def kind(self) -> str:
        """The arguments with types in the places of tensors: what a trace for any number of rows depends on."""
        flat = [leaf if isinstance(leaf, PLAIN) else type(leaf).__name__ for leaf in self._flat]
        for position, spec in zip(self._with_rows, self._types, strict=False):
            flat[position] = spec
        return repr((keras.tree.pack_sequence_as(self._structure, flat), self._riders))

    def types(self, rows: int | None) -> list[tf.TypeSpec]:
        """Types of the tensors of a batch like this, with so many rows, or with any number."""
        return [_with_rows(spec, rows) for spec in self._types]

    def without_tensors(self) -> "CallArguments":
        """Return a copy that can be rebuilt for other tensors, and keeps no graph alive."""
        other = copy.copy(self)
        other._flat = [None if tf.is_tensor(leaf) else leaf for leaf in self._flat]
        other._structure = keras.tree.pack_sequence_as(self._structure, other._flat)
        return other

    def rebuild(self, tensors: Sequence[tf.Tensor]) -> tuple[tuple, dict[str, Any]]:
        """Arguments like the original ones, with other tensors (a slice's) in their places."""
        flat, number = list(self._flat), len(self._with_rows)
        inputs = self._riders.attached(tensors[:number], tensors[number:])
        for position, tensor in zip(self._with_rows, inputs, strict=True):
            flat[position] = tensor
        return keras.tree.pack_sequence_as(self._structure, flat)


def _as_tensor(leaf: Any) -> Any:
    """Arrays become tensors, as Keras does with the inputs of a layer; flags and None stay what they are."""
    return tf.convert_to_tensor(leaf) if hasattr(leaf, "__array__") and not tf.is_tensor(leaf) else leaf


def _has_rows(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.shape.rank != 0


def open_types(tensors: Sequence[tf.Tensor]) -> list[tf.TypeSpec]:
    """The types of tensors, dense, ragged or sparse, with any number of rows: those of all slices."""
    return [_with_rows(tf.type_spec_from_value(x), None) for x in tensors]


def _with_rows(spec: tf.TypeSpec, rows: int | None) -> tf.TypeSpec:
    shape = tf.TensorShape([rows]).concatenate(spec.shape[1:])  # of unknown rank where that of a batch is
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return type(spec)(shape, spec.dtype)


def flatten_composites(tensors: Sequence[Any]) -> list[Any]:
    """Dense components of a list of tensors, as functions and gradients take them; or of types, their types."""
    return tf.nest.flatten(list(tensors), expand_composites=True)


def restore_composites(like: Sequence[tf.Tensor], components: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The inverse of `flatten_composites` for tensors of the types in `like`, with as many rows as they have."""
    return tf.nest.pack_sequence_as(open_types(like), list(components), expand_composites=True)
