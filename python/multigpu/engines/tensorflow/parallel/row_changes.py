"""Find the layer that changes the number of rows, after slices of a batch could not run or be merged."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import replaced
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.batches.split_merge import MERGED
from multigpu.engines.tensorflow.replicas.outputs import is_constant
from multigpu.engines.tensorflow.replicas.row_mixing import WholeBatchError
from multigpu.private_api.layers import sublayers

MANY = 840  # rows to use if their number is open: divisible by all small numbers


def name_layer(
    error: Exception, template: keras.Layer, batch: CallArguments, rows: int | None, num_slices: int
) -> None:
    """Raise a better error for a failed call, if a layer that needs its batch in one piece caused it."""
    if MERGED in str(error):
        shapes = re.findall(r"shape\[\d+\] = (\[[\d,]*\])", str(error))
        raise refuse(
            "outputs that have one shape in all slices but for their rows, so that they can be merged",
            f"slices of shapes {' and '.join(shapes)}: each is as long as its own longest row",
            "Give all rows one length, as `x.to_tensor(shape=(None, 20))` and `output_sequence_length=20` do; or "
            "return ragged rows.",
            error=WholeBatchError,
        ) from error
    change = row_change(template, batch, rows, num_slices)
    if change:
        raise refuse(
            "layers that take the rows of a batch one by one, so that slices of it can be run and merged",
            change,
            f"Return one row per row there, or run the template on one device. It ended in: {error}",
            error=WholeBatchError,
        ) from error


def row_change(template: keras.Layer, batch: CallArguments, rows: int | None, num_slices: int) -> str | None:
    """Return a sentence on the first layer that cannot run slice by slice; None if there is none.

    It traces the template for as many rows as the batch has, and never runs it.

    Args:
        template: the model, or another callable.
        batch: the arguments of the call that failed.
        rows: the number of rows of the batch, if known.
        num_slices: the number of slices of the batch.
    """
    rows = rows or MANY
    whole = _Trace(template, batch, rows)
    if not whole.ends:
        return None  # the model fails on one device, too
    if whole.changes_rows:
        return whole.first
    part = _Trace(template, batch, max(rows // num_slices, 1))
    return None if part.ends else whole.first or part.first or part.failed  # which may show the error but not cause it


class _Trace:
    """A trace of a model for a number of rows.

    Attributes:
        first: what the first layer does whose output has other rows than its input, in words.
        failed: the layer in which the trace ended with an error, and its number of rows.
        ends: whether the trace was complete.
        changes_rows: whether an output of the model has another number of rows, and not a multiple of it.
    """

    def __init__(self, template: keras.Layer, batch: CallArguments, rows: int) -> None:
        self._rows = rows
        self.first: str | None = None
        self.failed: str | None = None
        self.ends = self.changes_rows = False
        with contextlib.suppress(Exception), tf.init_scope(), self._watching(template):
            traced = tf.function(lambda *tensors: self._call(template, batch, tensors), autograph=False)
            traced.get_concrete_function(*batch.types(rows))
            self.ends = True

    def _call(self, template: keras.Layer, batch: CallArguments, tensors: Sequence[tf.Tensor]) -> None:
        args, kwargs = batch.rebuild(tensors)
        with keras.StatelessScope(collect_losses=True):
            outputs = template(*args, **kwargs)
        sizes = [_size(x) for x in keras.tree.flatten(outputs) if not is_constant(x)]
        self.changes_rows = any(map(self._is_other, sizes))

    def _is_other(self, size: int | None) -> bool:
        """Return whether a number of rows is neither that of the batch nor a multiple of it."""
        return size is None or size % self._rows != 0

    @contextlib.contextmanager
    def _watching(self, template: keras.Layer) -> Iterator[None]:
        layers = [template, *sublayers(template)]
        parts = {id(part): part for layer in layers for part in [layer, *getattr(layer, "operations", [])]}.values()
        with contextlib.ExitStack() as stack:
            for part in parts:
                stack.enter_context(replaced(part, "call", self._watched(part, part.call)))
            yield

    def _watched(self, part: keras.Operation, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                outputs = call(*args, **kwargs)
            except Exception:
                self.failed = self.failed or f"layer {part.name!r}, which fails with {self._rows} rows"
                raise
            taken, made = (list(filter(tf.is_tensor, keras.tree.flatten(each))) for each in ((args, kwargs), outputs))
            given = [x.shape for x in taken if not self._is_other(_size(x))]
            changed = [x.shape for x in made if self._is_other(_size(x))]
            if given and changed and self.first is None:
                self.first = (
                    f"layer {part.name!r}, whose output has shape {tuple(changed[0])} "
                    f"for an input of shape {tuple(given[0])}"
                )
            return outputs

        return watched


def _size(x: Any) -> int | None:
    """Return the rows of a tensor. None if it has none, or they are unknown."""
    return x.shape[0] if tf.is_tensor(x) and x.shape.rank else None
