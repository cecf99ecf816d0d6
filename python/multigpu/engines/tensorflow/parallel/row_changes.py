"""Find the layer that changes the number of rows, or that needs it, after slices could not run or be merged."""

import contextlib
import re
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.batches.split_merge import BATCH_AXIS_LOST, MERGED
from multigpu.engines.tensorflow.private_api.gradients import tapes_of_their_own
from multigpu.engines.tensorflow.replicas.layer_calls import (
    LayerCall,
    LayerCalls,
    callables,
    in_order_of_results,
    tensors_of,
)
from multigpu.engines.tensorflow.replicas.outputs import is_constant
from multigpu.engines.tensorflow.replicas.row_mixing import IN_ONE_PIECE, WholeBatchError, not_one_by_one
from multigpu.private_api.layers import sublayers

MANY = 840  # rows to use if their number is open: divisible by all small numbers


class OpenRowsError(ValueError):
    """A layer needs the number of rows in Python."""


def name_layer(
    error: Exception, template: keras.Layer, batch: CallArguments, rows: int | None, num_slices: int
) -> None:
    """Raise a better error for a failed call, if a layer that needs its batch in one piece caused it."""
    if BATCH_AXIS_LOST in str(error) or (MERGED in str(error) and re.search("must be rank|Ranks of all", str(error))):
        raise refuse(
            "outputs with a batch axis in slices of any size",
            "one that has none in a slice of one row",
            "Name the axis to remove, as in `tf.squeeze(x, axis=1)`: without a name, it may be the batch axis, too.",
            error=WholeBatchError,
        ) from error
    if MERGED in str(error):
        shapes = re.findall(r"shape\[\d+\] = (\[[\d,]*\])", str(error))
        raise refuse(
            "outputs with the same shape in all slices, except for the number of rows, so that they can be merged",
            f"slices of shapes {' and '.join(shapes)}: each is as long as its own longest row",
            "Give all rows one length, as `x.to_tensor(shape=(None, 20))` and `output_sequence_length=20` do; or "
            "return ragged rows.",
            error=WholeBatchError,
        ) from error
    change = row_change(template, batch, rows, num_slices)
    if change:
        each = "Return one output row for each input row there, for any number of rows"
        use = f"{each}; or {IN_ONE_PIECE}. The error was: {error}"
        raise not_one_by_one(change, use) from error
    if rows and _trace(template, batch, rows).ends and not (of_any := _trace(template, batch, None)).ends:
        raise refuse(
            "layers that do not need the number of rows in Python, because slices differ in it",
            of_any.failed or f"model {template.name!r}, which fails if the number of rows is open",
            "Replace `x.shape[0]` by `keras.ops.shape(x)[0]`, or compile with `run_eagerly=True`. The error was: "
            f"{error}",
            error=OpenRowsError,
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
    whole = _trace(template, batch, rows)
    if not whole.ends:
        return None  # the model fails on one device, too
    if whole.changes_rows:
        return whole.first
    part = _trace(template, batch, max(rows // num_slices, 1))
    return None if part.ends else whole.first or part.first or part.failed  # which may show the error but not cause it


class _Trace(NamedTuple):
    """The results of a trace of a model for a number of rows.

    Attributes:
        ends: whether the trace was complete.
        changes_rows: whether an output of the model has another number of rows, and not a multiple of it.
        first: what the first layer does whose output has other rows than its input, in words.
        failed: the layer in which the trace ended with an error, and its number of rows.
    """

    ends: bool
    changes_rows: bool
    first: str | None
    failed: str | None


def _trace(template: keras.Layer, batch: CallArguments, rows: int | None) -> _Trace:
    sizes: list[list[int | None]] = []  # of the outputs, when the trace is complete

    def call(*tensors: tf.Tensor) -> None:
        args, kwargs = batch.rebuild(tensors)
        with keras.StatelessScope(collect_losses=True), calls.noted(callables([template, *sublayers(template)])):
            outputs = keras.tree.flatten(template(*args, **kwargs))
        sizes.append([_size(x) for x in outputs if not is_constant(x)])

    with contextlib.suppress(Exception), tf.init_scope(), tapes_of_their_own():
        calls = LayerCalls(template)
        tf.function(call, autograph=False).get_concrete_function(*batch.types(rows))
    of_layers = [each for (each,) in in_order_of_results(calls.root)]
    failed = [each.layer.name for each in of_layers if each.fails]
    with_rows = f"with {rows} rows" if rows else "if the number of rows is open"
    return _Trace(
        ends=bool(sizes),
        changes_rows=any(_is_other(size, rows) for of_outputs in sizes for size in of_outputs),
        first=next(filter(None, (_change(each, rows) for each in of_layers)), None),
        failed=f"layer {failed[0]!r}, which fails {with_rows}" if failed else None,
    )


def _change(call: LayerCall, rows: int | None) -> str | None:
    """Return a sentence on a call whose output has other rows than its input."""
    given = [x.shape for x in tensors_of((call.args, call.kwargs)) if not _is_other(_size(x), rows)]
    made = [x.shape for x in tensors_of(call.outputs) if _is_other(_size(x), rows)]
    if not (given and made):
        return None
    return f"layer {call.layer.name!r}, whose output has shape {tuple(made[0])} for an input of shape {tuple(given[0])}"


def _is_other(size: int | None, rows: int | None) -> bool:
    """Return whether a number of rows is neither that of the batch, if known, nor a multiple of it."""
    return rows is not None and (size is None or size % rows != 0)


def _size(x: Any) -> int | None:
    """Return the rows of a tensor. None if it has none, or they are unknown."""
    return x.shape[0] if tf.is_tensor(x) and x.shape.rank else None
