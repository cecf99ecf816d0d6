"""Find calls of layers that stand alone: all inputs and outputs have rows, so that slices of them can be merged."""

import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from multigpu.engines.tensorflow.batches.masks_and_logits import with_all_attached
from multigpu.engines.tensorflow.batches.split_merge import count_rows
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, LayerCalls, all_calls, other_calls, tensors_of


def find_alone(calls: LayerCalls, slices: Sequence[tf.Tensor]) -> None:
    """Find the calls that stand alone in a trace, after masks are attached to outputs: Keras has rows first.

    It also finds the attributes that are set to tensors with rows.

    Args:
        calls: the calls of a run of a template.
        slices: its input tensors with rows.
    """
    graph = tf.compat.v1.get_default_graph()
    ragged = any(map(_is_composite, slices)) or any(op.type.startswith("Ragged") for op in graph.get_operations())
    for call in all_calls(calls.root):
        tensors = _taken_and_given(call)
        merged = all(_has_rows(x, graph) and not (ragged and _is_of_slice(x)) for x in tensors)
        call.stands_alone = bool(tensors_of(call.outputs)) and merged and not call.is_watched
    calls.places_with_rows = {each.place for each in calls.kept if all(_has_rows(x, graph) for x in each.tensors)}


def find_alone_by(calls: LayerCalls, slices: Sequence[tf.Tensor], run: Callable[[int], LayerCalls]) -> None:
    """Find them in a run op by op, where no axis is open, by runs with 2 and 3 rows.

    Args:
        calls: the calls of a run of a template.
        slices: its input tensors with rows.
        run: a function that makes a run with so many rows.
    """
    few = run(2), run(3)
    two, three = ({each.place: each.tensors for each in run_.kept} for run_ in few)
    calls.places_with_rows = {
        each.place
        for each in calls.kept
        if len(each.tensors) == len(two.get(each.place, ())) == len(three.get(each.place, ()))
        and all(map(_grows_by_rows, each.tensors, two[each.place], three[each.place]))
    }
    if any(map(_is_composite, slices)):
        return  # 2 rows may have any number of values
    runs = [list(all_calls(each.root)) for each in (calls, *few)]
    if any([call.layer for call in other] != [call.layer for call in runs[0]] for other in runs):
        return  # the template does not call the same layers each time
    for call, *others in zip(*runs, strict=True):
        tensors = [_taken_and_given(each) for each in (call, *others)]
        alike = len(tensors[0]) == len(tensors[1]) == len(tensors[2])
        merged = alike and all(map(_grows_by_rows, *tensors))
        call.stands_alone = bool(tensors_of(call.outputs)) and merged


def stand_alone_as(calls: LayerCalls, known: LayerCalls) -> None:
    """Mark the same calls as standing alone as in the run of another slice, and the same attributes."""
    for call, other in itertools.zip_longest(all_calls(calls.root), all_calls(known.root)):
        if call is None or other is None or call.layer is not other.layer:
            raise other_calls((call or other).layer)
        call.stands_alone = other.stands_alone
    calls.places_with_rows = known.places_with_rows


def _taken_and_given(call: LayerCall) -> list[tf.Tensor]:
    """Return the input and output tensors of a call, and their attached masks and logits."""
    return with_all_attached(tensors_of((call.args, call.kwargs, call.outputs)))


def _is_composite(x: tf.Tensor) -> bool:
    """Return whether a tensor is ragged or sparse."""
    return len(tf.nest.flatten(x, expand_composites=True)) > 1


def _has_rows(x: tf.Tensor, graph: tf.Graph) -> bool:
    """Return whether the first axis is open. Tensors of inner loops cannot leave them, and constants have no rows."""
    parts = tf.nest.flatten(x, expand_composites=True)
    if not all(tf.is_symbolic_tensor(part) and part.graph is graph for part in parts):
        return False
    return _is_composite(x) or (x.shape.rank not in (None, 0) and x.shape[0] is None)


def _is_of_slice(x: tf.Tensor) -> bool:
    """Return whether a tensor may be dense like a slice: padded to its longest row, or integers as positions."""
    return not _is_composite(x) and not (x.dtype.is_floating and x.shape[1:].is_fully_defined())


def _grows_by_rows(x: tf.Tensor, two: tf.Tensor, three: tf.Tensor) -> bool:
    """Return whether a tensor has rows of one size, according to runs with 2 and 3 rows."""
    rows = [_num_rows(each) for each in (two, three)]
    same = _is_composite(x) or x.shape[1:] == two.shape[1:] == three.shape[1:]
    return same and rows[0] > 0 and rows[0] % 2 == 0 and rows[0] * 3 == rows[1] * 2


def _num_rows(tensor: tf.Tensor) -> int:
    """Return the rows of a tensor that has values, or 0 if it has none, or no axis."""
    values = tf.nest.flatten(tensor, expand_composites=True)
    if any(tf.is_symbolic_tensor(value) for value in values) or tensor.shape.rank == 0:
        return 0
    return int(count_rows([tensor]))
