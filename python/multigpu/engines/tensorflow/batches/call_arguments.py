"""Split the arguments of a call into tensors with rows and all other values."""

import copy
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.masks_and_logits import MasksAndLogits
from multigpu.engines.tensorflow.batches.split_merge import count_rows
from multigpu.engines.tensorflow.private_api.gradients import is_watched

PLAIN = (bool, int, float, str, type(None))  # arguments whose values may change what a call does


class CallArguments:
    """The arguments of a call, as a flat list of tensors with rows, which can be rebuilt for any slice.

    Masks and logits that are attached to inputs are sliced with them. A composite tensor (ragged, sparse) counts as
    one.
    """

    def __init__(self, args: tuple, kwargs: dict[str, Any]):
        self._structure = (args, kwargs)
        self._flat = [_as_tensor(leaf) for leaf in keras.tree.flatten(self._structure)]
        self._with_rows = [position for position, leaf in enumerate(self._flat) if _has_rows(leaf)]
        self._scalars = [position for position, leaf in enumerate(self._flat) if _is_variable_scalar(leaf)]
        self._attached = MasksAndLogits(self._inputs)
        self._types = open_types(self.tensors)
        if not self._with_rows:
            raise refuse(
                "a batch: at least one input tensor with rows",
                f"args={args}, kwargs={kwargs}",
                "Pass arrays or tensors whose first axis is the batch.",
            )
        self._refuse_other_rows()

    @property
    def tensors(self) -> list[tf.Tensor]:
        """Tensors with rows: inputs, then the masks and logits that are attached to them."""
        return [*self._inputs, *self._attached.of(self._inputs)]

    @property
    def _inputs(self) -> list[tf.Tensor]:
        return [self._flat[position] for position in self._with_rows]

    @property
    def scalars(self) -> list[tf.Tensor]:
        """Tensors without an axis that a trace does not know, or that have a gradient. All slices receive them."""
        return [self._flat[position] for position in self._scalars]

    @property
    def training(self) -> bool | None:
        """The value of `training` in the call. None if the call does not pass it."""
        return keras.tree.pack_sequence_as(self._structure, self._flat)[1].get("training")

    def count_rows(self) -> tf.Tensor:
        """Return the rows of the batch, a scalar int32. TensorFlow raises an error if an input has other rows."""
        return count_rows(self.tensors, self._names)

    @property
    def known_rows(self) -> int | None:
        """The number of rows of the batch. None while it is unknown."""
        return self.tensors[0].shape[0]

    @property
    def _names(self) -> list[str]:
        """Return the names of the inputs with rows, in words."""
        paths = [path for path, _ in keras.tree.flatten_with_path(self._structure)]
        return [_name(*paths[position]) for position in self._with_rows]

    def _refuse_other_rows(self) -> None:
        rows = self._inputs[0].shape[:1]
        for number, x in enumerate(self._inputs):
            if not x.shape[:1].is_compatible_with(rows):
                raise refuse(
                    "tensors with as many rows as the batch, because each tensor of a call is split along its first "
                    "axis",
                    f"{self._names[number]} of shape {tuple(x.shape)}, and a batch of {rows[0]} rows",
                    "Give a layer what all rows share as an attribute or a weight, or repeat it for each row.",
                )

    @property
    def kind(self) -> str:
        """The arguments with types in place of tensors: a trace for any number of rows depends on these."""
        flat = [leaf if isinstance(leaf, PLAIN) else type(leaf).__name__ for leaf in self._flat]
        for position, spec in zip(self._with_rows, self._types, strict=False):
            flat[position] = spec
        return repr((keras.tree.pack_sequence_as(self._structure, flat), self._attached))

    def types(self, rows: int | None) -> list[tf.TypeSpec]:
        """Return the types of a batch's tensors, for a number of rows or for any number."""
        return [_with_rows(spec, rows) for spec in self._types]

    def without_tensors(self) -> "CallArguments":
        """Return a copy that can be rebuilt with other tensors, and keeps no graph alive."""
        other = copy.copy(self)
        other._flat = [None if tf.is_tensor(leaf) else leaf for leaf in self._flat]
        other._structure = keras.tree.pack_sequence_as(self._structure, other._flat)
        return other

    def rebuild(
        self, tensors: Sequence[tf.Tensor], scalars: Sequence[tf.Tensor] | None = None
    ) -> tuple[tuple, dict[str, Any]]:
        """Return these arguments with other tensors, such as a slice's, and possibly other scalars."""
        flat, number = list(self._flat), len(self._with_rows)
        inputs = self._attached.attached(tensors[:number], tensors[number:])
        places = [*self._with_rows, *(self._scalars if scalars is not None else [])]
        for position, tensor in zip(places, [*inputs, *(scalars or [])], strict=True):
            flat[position] = tensor
        return keras.tree.pack_sequence_as(self._structure, flat)


def _as_tensor(leaf: Any) -> Any:
    """Convert arrays and variables to tensors, as ops do with the inputs of a layer. Flags become Python's."""
    is_array = hasattr(leaf, "__array__") and not tf.is_tensor(leaf)
    x = tf.convert_to_tensor(leaf) if is_array or isinstance(leaf, tf.Variable) else leaf
    return bool(x) if _is_flag(x) else x


def _is_flag(x: Any) -> bool:
    """Return whether a tensor is one known truth value, such as Keras makes of `training=np.True_`."""
    return tf.is_tensor(x) and hasattr(x, "numpy") and x.dtype == tf.bool and x.shape.rank == 0


def _name(named: int, which: int | str, *inner: int | str) -> str:
    """Return the name of a value by its path in the arguments and the named arguments of a call."""
    return f"`{which if named else f'args[{which}]'}{''.join(f'[{key!r}]' for key in inner)}`"


def _is_variable_scalar(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and not _has_rows(leaf) and (tf.is_symbolic_tensor(leaf) or is_watched(leaf))


def _has_rows(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and leaf.shape.rank != 0


def open_types(tensors: Sequence[tf.Tensor]) -> list[tf.TypeSpec]:
    """Return the types of tensors (dense, ragged or sparse) with any number of rows, which fit all slices."""
    return [_with_rows(tf.type_spec_from_value(x), None) for x in tensors]


def _with_rows(spec: tf.TypeSpec, rows: int | None) -> tf.TypeSpec:
    shape = tf.TensorShape([rows]).concatenate(spec.shape[1:])  # of unknown rank if the batch is
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return type(spec)(shape, spec.dtype)


def flatten_composites(tensors: Sequence[Any]) -> list[Any]:
    """Return the dense components of tensors, as functions and gradients need them; or the types of types."""
    return tf.nest.flatten(list(tensors), expand_composites=True)


def restore_composites(like: Sequence[tf.Tensor], components: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Invert `flatten_composites()` for tensors of the types in `like`, with the components' number of rows."""
    return tf.nest.pack_sequence_as(open_types(like), list(components), expand_composites=True)
