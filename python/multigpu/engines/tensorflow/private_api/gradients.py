"""A function with a gradient of its own, which goes when the graph goes in which it was called."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops  # its registry of gradients: see `_tie`

from multigpu.engines.tensorflow.private_api.graphs import outermost

ATTRIBUTE = "_multigpu_gradients"  # of a graph


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `tf.custom_gradient`, whose gradients stay in a table of the process for good.

    With them would stay the graph, the model around it, and the memory of the weights on all devices: one more with
    every model that is trained in a process.

    Args:
        function: gives its results and a function for their gradient, as for `tf.custom_gradient`. What it is given are
            tensors of the graph that it is called in, which a gradient of its gradient reaches, too; those that it
            takes from around it may be out of scope there.

    Returns:
        The function of the same arguments that gives the results alone.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        results = differentiable(*map(_of_this_graph, args))
        for result in tf.nest.flatten(results)[:1]:
            if tf.is_symbolic_tensor(result):
                _tie(result.op.get_attr("_gradient_op_type").decode(), outermost(result.graph))
        return results

    return call


def dense(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """A gradient as one tensor: that of a function that takes some rows of a tensor, such as `tf.gather`, is rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])


def _of_this_graph(x: Any) -> Any:
    elsewhere = tf.is_symbolic_tensor(x) and x.graph is not tf.compat.v1.get_default_graph()
    return tf.identity(x) if elsewhere else x


def _tie(name: str, graph: tf.Graph) -> None:
    """Leaves but a weak reference in TensorFlow's table, which has no public way to take anything out."""
    table = ops.gradient_registry._registry
    gradient = table[name]["type"]
    table[name] = {**table[name], "type": _Weak(gradient)}
    setattr(graph, ATTRIBUTE, [*getattr(graph, ATTRIBUTE, ()), gradient])
    weakref.finalize(gradient, table.pop, name, None)


class _Weak:
    """Calls a function for as long as something else holds it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = weakref.ref(function)

    def __call__(self, *args: Any) -> Any:
        function = self._function()
        assert function is not None  # its graph holds it, and whoever asks has an op of that graph
        return function(*args)
