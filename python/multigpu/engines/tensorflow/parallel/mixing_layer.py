"""Find the layer that mixes rows: the first whose slices give other outputs than the whole, for the same inputs."""

from collections.abc import Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.parallel.differences import difference
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, in_order_of_results, tensors_of


def mixing_layer(whole: LayerCall, slices: Sequence[LayerCall], limit: float) -> str | None:
    """Return the name of the layer or operation whose slices give other outputs, or None if it is unknown.

    Args:
        whole: the calls of a run on some rows, op by op.
        slices: the calls of runs on slices of these rows.
        limit: the relative difference above which numbers count as different.
    """
    for call, *parts in in_order_of_results(whole, *slices):
        outputs = [tensors_of(each.outputs) for each in (call, *parts)]
        inputs = [tensors_of((each.args, each.kwargs)) for each in (call, *parts)]
        if _differ(outputs, limit) and not _differ(inputs, limit):
            return call.layer.name
    return None


def _differ(tensors: Sequence[Sequence[tf.Tensor]], limit: float) -> bool:
    """Return whether any tensor of the whole differs from the joined tensors of the slices."""
    if len({len(each) for each in tensors}) != 1:
        return True
    return any(_differs(whole, parts, limit) for whole, *parts in zip(*tensors, strict=True))


def _differs(whole: tf.Tensor, parts: Sequence[tf.Tensor], limit: float) -> bool:
    if not isinstance(whole, tf.Tensor):  # ragged or sparse: the layers that make it dense are compared
        return False
    rows = [x.shape[0] if x.shape.rank else 0 for x in (whole, *parts)]
    if whole.shape.rank and rows[0] == sum(rows[1:]):
        alike = {tuple(x.shape[1:]) for x in (whole, *parts)}
        return len(alike) > 1 or difference(tf.concat(parts, 0), whole).relative > limit
    return any(difference(part, whole).relative > limit for part in parts)  # without rows
