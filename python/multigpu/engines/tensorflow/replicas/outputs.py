"""The layout of a replica's results: flat tensors, and the meaning of each. It is the same for every replica."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import flatten_composites, restore_composites
from multigpu.engines.tensorflow.batches.masks_and_logits import MasksAndLogits
from multigpu.engines.tensorflow.batches.split_merge import Position, drop_standby, merge, with_batch_axis
from multigpu.engines.tensorflow.replicas.template import OfTrace
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure

CONSTANTS = (bool, int, float, str, bytes, np.generic, np.ndarray)  # types of outputs that one device returns unchanged
WITH_ROWS = object()  # in the place of a merged output


class Result(NamedTuple):
    """The results of a run.

    Attributes:
        with_rows: outputs and their attributes, and inner layers' tensors. Those of `OutputLayout.same` have no rows.
        losses: added losses.
        noise: states of generators at some calls of layers, the same in all replicas.
        updates: values of state.
    """

    with_rows: list[tf.Tensor]
    losses: list[tf.Tensor]
    noise: list[tf.Tensor]
    updates: list[tf.Tensor]


def is_constant(output: Any) -> bool:
    """Return whether an output is the same for all rows: None, or in a trace, a value that is not a tensor."""
    return output is None or (isinstance(output, CONSTANTS) and not tf.executing_eagerly())


class OutputLayout:
    """The places of outputs, their masks and logits, and losses in the flat list that a function can return.

    Attributes:
        same: the places of outputs that no row reaches. Every replica has the same, as one device has it.
        without_rank: the places of outputs with a number of axes that a trace does not tell.
    """

    def __init__(
        self,
        outputs: Any,
        inner: Sequence[tf.Tensor],
        num_losses: int,
        num_noise: int,
        rows: tf.Tensor,
        of_rows: Callable[[tf.Tensor], bool],
        of_trace: OfTrace,
    ) -> None:
        """Record what the template, and layers inside of it, returned.

        Args:
            outputs: the outputs of the template.
            inner: tensors of layers inside of it, with rows.
            num_losses: the number of added losses.
            num_noise: the number of states of noise.
            rows: (), how many rows the template had.
            of_rows: tells whether a tensor depends on rows, in a trace.
            of_trace: what a trace has shown, if it runs op by op.
        """
        flat = keras.tree.flatten_with_path(outputs)
        self._flat = [output if is_constant(output) else WITH_ROWS for _, output in flat]
        paths = [path for path, output in flat if not is_constant(output)]
        leaves = [output for _, output in flat if not is_constant(output)]
        self._structure, self._attached = keras.tree.map_structure(lambda _: 0, outputs), MasksAndLogits(leaves)
        given = [*leaves, *self._attached.of(leaves)]
        self.same = frozenset(n for n, x in enumerate(given) if n in of_trace.same or _is_same(x, of_rows))
        unknown = frozenset(n for n, x in enumerate(given) if isinstance(x, tf.Tensor) and x.shape.rank is None)
        self.without_rank = unknown.union(of_trace.without_rank)
        for number, (path, output) in enumerate(zip(paths, leaves, strict=True)):
            if number not in self.same:
                _check_batch_axis(path, output, rows)
        self.with_rows, self._num_inner = [*given, *inner], len(inner)
        self.num_losses, self._num_noise = num_losses, num_noise

    @property
    def num_differentiable(self) -> int:
        """How many of the flat tensors, from the first on, may have a gradient: all except noise and updates."""
        return len(flatten_composites(self.with_rows)) + self.num_losses

    @property
    def likely_used(self) -> list[int]:
        """Numbers of those that a loss is likely to depend on: of logits, rather than of probabilities that have some.

        To these, and to nothing else, Keras' crossentropies go back.
        """
        places = [place for place, x in enumerate(self.with_rows) for _ in flatten_composites([x])]
        of_outputs = [number for number, place in enumerate(places) if place not in self._attached.with_logits]
        return [*of_outputs, *range(len(places), self.num_differentiable)]

    def open(self, flat: Sequence[tf.Tensor]) -> Result:
        """Return the flat tensors of one run, by their meaning."""
        rows, losses = len(flatten_composites(self.with_rows)), self.num_differentiable
        with_rows = restore_composites(self.with_rows, list(flat[:rows]))
        noise = losses + self._num_noise
        return Result(with_rows, list(flat[rows:losses]), list(flat[losses:noise]), list(flat[noise:]))

    def counted(self, with_rows: Sequence[tf.Tensor], position: Position) -> list[tf.Tensor]:
        """Return the tensors of a run with the rows that count: none of an idle replica."""
        kept, total = position.kept, position.total
        checked = [
            with_batch_axis(x, kept, total) if number in self.without_rank else x for number, x in enumerate(with_rows)
        ]
        return [x if number in self.same else drop_standby(x, kept) for number, x in enumerate(checked)]

    def merge(self, results: Sequence[Result]) -> list[tf.Tensor]:
        """Return the tensors of all rows, from those of slices."""
        each = zip(*(result.with_rows for result in results), strict=True)
        return [pieces[0] if number in self.same else merge(pieces) for number, pieces in enumerate(each)]

    def watch(self, merged: Sequence[tf.Tensor], structure: GradientStructure) -> list[tf.Tensor]:
        """Return merged tensors and losses, watched under the numbers of their slices in the flat list."""
        components = [structure.watch(x, number) for number, x in enumerate(flatten_composites(merged))]
        return restore_composites(merged, components)

    def outputs(self, with_rows: Sequence[tf.Tensor]) -> Any:
        """Return merged tensors in the structure of the outputs, with constants, logits and masks."""
        end = len(with_rows) - self._num_inner
        num_outputs = end - len(self._attached)
        return self.with_constants(self._attached.attached(with_rows[:num_outputs], with_rows[num_outputs:end]))

    def with_constants(self, tensors: Iterable[tf.Tensor]) -> Any:
        """Return the outputs that are tensors in the structure of all."""
        in_order = iter(tensors)
        flat = [next(in_order) if output is WITH_ROWS else output for output in self._flat]
        return keras.tree.pack_sequence_as(self._structure, flat)

    def without_rows(self, outputs: Any) -> list[tf.Tensor]:
        """Return those of the merged outputs that no row reaches."""
        leaves = zip(keras.tree.flatten(outputs), self._flat, strict=True)
        merged = [output for output, kind in leaves if kind is WITH_ROWS]
        return [output for number, output in enumerate(merged) if number in self.same]

    def inner(self, with_rows: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Return merged tensors of layers inside of the template."""
        return with_rows[len(with_rows) - self._num_inner :]


def _is_same(output: Any, of_rows: Callable[[tf.Tensor], bool]) -> bool:
    """Return whether an output is a tensor that no row reaches, and so has no rows. Weights are not tensors here."""
    if not tf.is_tensor(output) or isinstance(output, keras.Variable | tf.Variable):
        return False
    return output.shape[:1] != [None] and not any(map(of_rows, flatten_composites([output])))


def _check_batch_axis(path: tuple, output: Any, rows: tf.Tensor) -> None:
    """Raise an error for outputs that cannot be merged. Op by op, only numbers of rows can be compared."""
    if tf.is_tensor(output) and output.shape.rank != 0:
        open_axis = output.shape[0] is None
        if open_axis or (tf.executing_eagerly() and output.shape[0] % max(int(rows), 1) == 0):
            return
    name = ".".join(str(part) for part in path) or "0"
    if isinstance(output, CONSTANTS):
        raise refuse(
            "outputs with rows, or None, in eager mode, because a number may belong to one slice",
            f"output {name!r}, which is {shown(output)}",
            "Compile without `run_eagerly`: a traced call may return numbers. Or return it from another method.",
        )
    raise no_batch_axis(name, getattr(output, "shape", ()))


def no_batch_axis(name: str, shape: Iterable[int | None]) -> ValueError:
    """Return the error for an output that cannot be merged."""
    return refuse(
        "every output of the template to have a batch axis, so that the slices of the replicas can be merged",
        f"output {name!r} with shape {tuple(shape)}",
        "Return one value per row, for instance a loss of shape (batch,), or move the reduction into a loss function "
        "or into `add_loss()`.",
    )
