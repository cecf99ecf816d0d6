"""The layer that mixes rows: the first of which slices give other outputs than the whole, for the same inputs."""

from collections.abc import Iterator, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.parallel.differences import difference
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, tensors_of


def mixing_layer(whole: LayerCall, slices: Sequence[LayerCall], limit: float) -> str | None:
    """Name of the layer or operation of which slices make something else, or None if it cannot be told.

    Args:
        whole: the calls of a run op by op, on some rows.
        slices: those of runs on slices of these rows.
        limit: the relative difference from which on numbers count as different.
    """
    for call, *parts in _in_order_of_results(whole, slices):
        outputs = [tensors_of(each.outputs) for each in (call, *parts)]
        inputs = [tensors_of((each.args, each.kwargs)) for each in (call, *parts)]
        if _differ(outputs, limit) and not _differ(inputs, limit):
            return call.layer.name
    return None


def _in_order_of_results(whole: LayerCall, slices: Sequence[LayerCall]) -> Iterator[tuple[LayerCall, ...]]:
    """Calls that belong together: inner ones before the one that makes them. It ends where slices call otherwise."""
    for inner in zip(whole.inner, *(each.inner for each in slices), strict=False):
        if any(each.layer is not inner[0].layer for each in inner):
            return
        yield from _in_order_of_results(inner[0], inner[1:])
        yield inner


def _differ(tensors: Sequence[Sequence[tf.Tensor]], limit: float) -> bool:
    """Return whether any tensor of the whole is another one when those of the slices are put together."""
    if len({len(each) for each in tensors}) != 1:
        return True
    return any(_differs(whole, parts, limit) for whole, *parts in zip(*tensors, strict=True))


def _differs(whole: tf.Tensor, parts: Sequence[tf.Tensor], limit: float) -> bool:
    if not isinstance(whole, tf.Tensor):  # ragged or sparse: the layers that make it dense are looked at
        return False
    rows = [x.shape[0] if x.shape.rank else 0 for x in (whole, *parts)]
    if whole.shape.rank and rows[0] == sum(rows[1:]):
        alike = {tuple(x.shape[1:]) for x in (whole, *parts)}
        return len(alike) > 1 or difference(tf.concat(parts, 0), whole).relative > limit
    return any(difference(part, whole).relative > limit for part in parts)  # of no rows
