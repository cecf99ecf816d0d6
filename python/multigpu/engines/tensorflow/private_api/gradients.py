"""Custom gradients that are deleted with the graph in which their function was called, and tapes that ask for one."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe  # its switch of tapes: see `tapes_of_their_own`
from tensorflow.python.eager import record
from tensorflow.python.framework import ops  # its registry of gradients: see `_tie`

from multigpu.engines.tensorflow.private_api.graphs import outermost

ATTRIBUTE = "_multigpu_gradients"  # types of a graph


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Work as `tf.custom_gradient`, whose gradients would stay in a table of the process for ever.

    The table would keep the graph, the model around it, and the memory of the weights on all devices, for each model
    that a process trains.

    Args:
        function: returns its results and a function for their gradient, as for `tf.custom_gradient`. Its arguments are
            tensors of the graph in which it is called, which a gradient of its gradient reaches, too. Tensors that it
            takes from its surroundings may be out of scope there.

    Returns:
        The function of the same arguments that returns only the results.
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


def is_watched(x: tf.Tensor) -> bool:
    """Return whether a tape takes the gradient of a tensor. There is no public way to ask."""
    return record.should_record_backprop([x])


@contextlib.contextmanager
def tapes_of_their_own() -> Iterator[None]:
    """Let tapes that code makes in a `with` block record, also inside of a `tf.init_scope()`, which stops all.

    There is no public way. Tapes around it record, too, what they watch: give the code other tensors.
    """
    stopped = pywrap_tfe.TFE_Py_TapeSetIsStopped()
    if stopped:
        pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        if stopped:
            pywrap_tfe.TFE_Py_TapeSetStopOnThread()


def dense(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Return a gradient as one tensor. Functions that take some rows, such as `tf.gather`, have rows as gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])


def with_gradient(x: tf.Tensor, gradient: Callable[..., Any], value: Callable[[tf.Tensor], Any] = tf.identity) -> Any:
    """Return a tensor, or the value of a function of it, with a gradient of its own, given that of the result."""
    return custom_gradient(lambda given: (value(given), gradient))(x)


def with_dense_gradient(x: tf.Tensor) -> tf.Tensor:
    """Return a tensor whose gradient is dense, even if some of its rows are taken."""
    return with_gradient(x, dense)


def _of_this_graph(x: Any) -> Any:
    elsewhere = tf.is_symbolic_tensor(x) and x.graph is not tf.compat.v1.get_default_graph()
    return tf.identity(x) if elsewhere else x


def _tie(name: str, graph: tf.Graph) -> None:
    """Leave only a weak reference in TensorFlow's table. There is no public way to remove an entry."""
    table = ops.gradient_registry._registry
    gradient = table[name]["type"]
    table[name] = {**table[name], "type": _Weak(gradient)}
    setattr(graph, ATTRIBUTE, [*getattr(graph, ATTRIBUTE, ()), gradient])
    weakref.finalize(gradient, table.pop, name, None)


class _Weak:
    """Calls a function as long as another object holds it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = weakref.ref(function)

    def __call__(self, *args: Any) -> Any:
        function = self._function()
        assert function is not None  # the graph holds it, and every caller has an op of that graph
        return function(*args)
