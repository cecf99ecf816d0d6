"""Find outputs that mix the rows of a batch in the trace of a replica, which has only the rows of its slice."""

from collections.abc import Collection, Sequence

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.private_api.graphs import CALLS, CHOICES, LOOPS
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls

OF_SHAPES = ("Shape", "ShapeN", "Size", "Rank")  # ops that do not read the values of rows
FUNCTIONS = (*LOOPS, *CHOICES, *CALLS)  # some of their results may read rows, and others not
IN_ONE_PIECE = "run the template on one device, or with `KERAS_BACKEND=jax`, where layers see the whole batch"


class WholeBatchError(ValueError):
    """A layer needs its batch in one piece."""


def not_one_by_one(received: str, use: str) -> WholeBatchError:
    """Return the error for a layer that needs its batch in one piece."""
    expected = "layers that take the rows of a batch one by one, so that slices of it can be run and merged"
    return refuse(expected, received, use, WholeBatchError)


def check_rows_apart(outputs: Sequence[tf.Tensor], rows: Sequence[tf.Tensor], calls: LayerCalls) -> None:
    """Raise an error that names a layer whose number from all rows reaches the outputs.

    Integers and booleans do not count as long as they are not converted: layers use them to choose how to compute.
    BatchNormalization may mix rows.

    Args:
        outputs: the outputs of the template, in a graph.
        rows: the tensors of the slice.
        calls: the layers that were called.

    Raises:
        WholeBatchError: names the layer and the shapes.
    """
    for op, taken, made in _mixes(rows, outputs):
        layer = calls.innermost(op)
        if not isinstance(layer, keras.layers.BatchNormalization):
            of = "" if taken.shape.is_fully_defined() else f" of a tensor of shape {tuple(taken.shape)}"
            raise not_one_by_one(
                f"layer {layer.name!r}, whose {op.type} computes numbers of shape {tuple(made.shape)} from all "
                f"rows{of}",
                "Keep the batch axis; or compare rows in a loss function or with `add_loss()`, which see the "
                f"global batch; or {IN_ONE_PIECE}.",
            )


def _mixes(rows: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> list[tuple[tf.Operation, tf.Tensor, tf.Tensor]]:
    """Return the ops that mix rows and on which outputs depend, in order, each with its input and its result.

    Such an op computes a number from all rows: its input has an open first axis, and its result no open axis. Or it
    computes a number from integers or booleans of all rows, such as the number of rows above a limit.
    """
    of_rows = set(map(id, rows))
    reading, given = [], set(of_rows)
    for op in tf.compat.v1.get_default_graph().get_operations():
        if op.type not in OF_SHAPES and any(id(x) in of_rows for x in op.inputs) and not _stands_for_all(op, given):
            of_rows.update(map(id, op.outputs))
            reading.append(op)
    needed, mixes = set(map(id, outputs)), []
    for op in reversed(reading):
        made = [x for x in op.outputs if id(x) in needed]
        needed.update(id(x) for x in _used(op) if made)
        taken = [x for x in op.inputs if id(x) in of_rows and not (x.dtype.is_floating and x.shape.is_fully_defined())]
        closed = [x for x in made if x.dtype.is_floating and x.shape.is_fully_defined()]
        if taken and closed and op.type not in FUNCTIONS:
            mixes.append((op, taken[0], closed[0]))
    return mixes[::-1]


def _stands_for_all(op: tf.Operation, given: Collection[int]) -> bool:
    """Return whether an op takes the first row of an input with one number for each row: a setting of all rows."""
    if op.type != "StridedSlice":
        return False
    x, begin = op.inputs[0], tf.get_static_value(op.inputs[1])
    is_one = x.shape[1:].num_elements() == op.outputs[0].shape.num_elements() == 1
    while id(x) not in given and x.op.type in ("Identity", "Cast", "Squeeze"):
        x = x.op.inputs[0]
    return is_one and id(x) in given and begin is not None and begin[0] == 0


def _used(op: tf.Operation) -> Sequence[tf.Tensor]:
    """Return the inputs on which an op depends. Layers multiply unused ones by 0 to keep them connected."""
    return [] if op.type == "Mul" and any(_is_zero(x) for x in op.inputs) else op.inputs


def _is_zero(x: tf.Tensor) -> bool:
    value = tf.get_static_value(x)
    return value is not None and not value.any()
