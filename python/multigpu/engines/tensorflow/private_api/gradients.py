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
from tensorflow.python.ops.parallel_for import pfor  # its table of converters: see `_vectorized`

from multigpu.base.refusal import refuse
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


def is_taped() -> bool:
    """Return whether a tape records now. There is no public way to ask."""
    return record.could_possibly_record()


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


def note_variables(function: tf.types.experimental.ConcreteFunction) -> None:
    """Tell code around a call which variables it reads. While tapes are stopped, TensorFlow does not do so itself.

    `tf.recompute_grad` stops them, and returns gradients of the variables that it was told of.
    """
    if pywrap_tfe.TFE_Py_TapeSetIsStopped():
        for variable in function.variables:
            variable.read_value()


def dense(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Return a gradient as one tensor. Functions that take some rows, such as `tf.gather`, have rows as gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])


def with_gradient(x: tf.Tensor, gradient: Callable[..., Any], value: Callable[[tf.Tensor], Any] = tf.identity) -> Any:
    """Return a tensor, or the value of a function of it, with a gradient of its own, given that of the result."""
    return custom_gradient(lambda given: (value(given), gradient))(x)


def has_gradient_of_user(op: tf.Operation) -> bool:
    """Return whether an op has a custom gradient that is not one of this package."""
    return "_gradient_op_type" in op.node_def.attr and not _is_own(op)


def _is_own(op: tf.Operation) -> bool:
    """Return whether an op with a custom gradient has one of this package: see `_tie()`."""
    name, table = op.node_def.attr["_gradient_op_type"].s.decode(), ops.gradient_registry._registry
    return name in table and isinstance(table[name]["type"], weakref.CallableProxyType)


def _of_this_graph(x: Any) -> Any:
    elsewhere = tf.is_symbolic_tensor(x) and x.graph is not tf.compat.v1.get_default_graph()
    return tf.identity(x) if elsewhere else x


def _tie(name: str, graph: tf.Graph) -> None:
    """Leave only a weak reference in TensorFlow's table. There is no public way to remove an entry."""
    table = ops.gradient_registry._registry
    gradient = table[name]["type"]
    table[name] = {**table[name], "type": weakref.proxy(gradient)}
    setattr(graph, ATTRIBUTE, [*getattr(graph, ATTRIBUTE, ()), gradient])
    weakref.finalize(gradient, table.pop, name, None)


def _vectorized(converter: Callable[[Any], list]) -> Callable[[Any], list]:
    """Return TensorFlow's converter of the op of a custom gradient, with an error in place of a gradient of zeros.

    `tf.vectorized_map` and Jacobians run one op for all elements. For the op of a custom gradient, they leave out the
    gradient, and inside of ours nothing is recorded. There is no public way to convert an op.
    """

    @functools.wraps(converter)
    def convert(given: Any) -> list:
        converted = converter(given)
        if not _is_own(given.op):
            return converted
        tensors = _without_gradient(*(each.t for each in converted))
        return [pfor.wrap(x, each.is_stacked) for x, each in zip(tensors, converted, strict=True)]

    return convert


@custom_gradient
def _without_gradient(*tensors: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
    def gradient(*upstream: tf.Tensor) -> Any:
        raise refuse(
            "gradients of a parallel model that do not pass through `tf.vectorized_map`, or through a Jacobian, which "
            "vectorizes, too",
            "one that does",
            "Use `tf.map_fn`, or `experimental_use_pfor=False` for the Jacobian; or call the template, which runs on "
            "one device.",
        )

    return tensors, gradient


pfor._pfor_converter_registry["IdentityN"] = _vectorized(pfor._pfor_converter_registry["IdentityN"])
