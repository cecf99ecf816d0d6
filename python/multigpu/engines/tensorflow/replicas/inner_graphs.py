"""Run functions, branches and loops of a template so that they keep nothing of a replica, and lose no assignment.

For a replica, variables are tensors, and an assigned value is another tensor. So

- a `tf.function` runs as its Python code, as a part of the replica: a trace would be kept, and used again;
- values that a branch or loop assigns are additional results of it. The trace shows which variables these are: the
  replica is then traced again, and carries them;
- a part that is computed again in the backward pass takes the weights that it reads as inputs.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import replaced
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense
from multigpu.engines.tensorflow.private_api.inner_graphs import as_written, fresh, handled, is_compiled
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope, in_replica
from multigpu.engines.tensorflow.replicas.tapes import floating, is_differentiable

LIBRARIES = ("tensorflow", "keras", "multigpu")  # whose custom gradients keep rows apart

Context = Callable[[ReplicaScope], contextlib.AbstractContextManager[None]]


def as_one_graph(
    scope: ReplicaScope, context: Context | None = None, kept: tf.Tensor | None = None
) -> contextlib.AbstractContextManager[None]:
    """Make functions, branches and loops parts of one replica, inside a `with` block.

    Args:
        scope: the variables of the replica.
        context: the context in which a part of it is computed again, given the variables. None if no part is.
        kept: the number of its rows that count. None if it is not idle.
    """
    return handled(_InnerGraphs(scope, context, kept), in_replica)


class _InnerGraphs:
    """Replacements of TensorFlow's functions. Their first argument is TensorFlow's own."""

    def __init__(self, scope: ReplicaScope, context: Context | None, kept: tf.Tensor | None) -> None:
        self._scope = scope
        self._context = context
        self._kept = kept

    def function(self, original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a `tf.function`."""
        if not is_compiled(function):
            args, kwargs = _as_tensors(function, args, kwargs)
            return as_written(function)(*args, **kwargs)
        with self._scope.inner_graph():  # some ops exist only in XLA
            result = original(fresh(function), *args, **kwargs)
        if self._scope.found:
            raise refuse(
                "`tf.function(jit_compile=True)` around layers that keep no state",
                f"{function.name!r}, in which {self._scope.found[0].path!r} is assigned",
                "Leave `jit_compile` out there, and compile the model with `jit_compile=True`.",
            )
        return result

    def branches(self, original: Callable[..., Any], index: Any, *branches: Any, **options: Any) -> Any:
        """Choose between branches: by a truth value between two functions, or by a number in a list of functions."""
        carrying = tf.nest.map_structure(lambda x: functools.partial(self._carry, x) if callable(x) else x, branches)
        result = original(index, *carrying, **options)
        if self._scope.carried:
            result, self._scope.carried_values = result
        return result

    def _carry(self, branch: Callable[[], Any]) -> Any:
        with self._scope.inner_graph():
            result = branch()
            return (result, self._scope.carried_values) if self._scope.carried else result

    def loop(
        self, original: Callable, condition: Callable, body: Callable, loop_vars: Sequence[Any], **options: Any
    ) -> Any:
        """Run a loop. Carried values come after its own variables."""
        before, same_structure = self._scope.carried_values, options.pop("return_same_structure", True)
        if options.get("shape_invariants") is not None:
            options["shape_invariants"] = [options["shape_invariants"], [value.shape for value in before]]

        def run(function: Callable[..., Any], own: Sequence[Any], values: Sequence[tf.Tensor]) -> tuple[Any, list]:
            with self._scope.inner_graph():
                self._scope.carried_values = values
                return function(*own), self._scope.carried_values

        def carrying(own: Sequence[Any], values: Sequence[tf.Tensor]) -> list[Any]:
            result, values = run(body, own, values)
            return [result if tf.nest.is_nested(result) else [result], values]

        result, self._scope.carried_values = original(
            lambda own, values: run(condition, own, values)[0], carrying, [loop_vars, before], **options
        )
        flat = tf.nest.flatten(result, expand_composites=True)
        return result if same_structure or len(flat) != 1 else flat[0]

    def custom_gradient(self, original: Callable, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function with a custom gradient, which may see all rows of a slice if it is the user's."""
        if function.__module__.partition(".")[0] not in LIBRARIES:
            if self._kept is not None:
                args = tf.nest.map_structure(self._of_rows, args)
            if self._scope.calls:
                self._scope.calls.note_custom_gradient()
        return original(function, args, kwargs)

    def _of_rows(self, x: Any) -> Any:
        """Return a tensor that gets no gradient in an idle replica: that of a user need not be zero for zeros."""
        return _with_rows(x, self._kept) if isinstance(x, tf.Tensor) and is_differentiable(x) else x

    def recomputed(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function of `tf.recompute_grad`. Op by op, and in a branch or loop, it is computed once."""
        if self._context is None or tf.executing_eagerly() or self._scope.is_inner():
            with replaced(self._scope, "dense_gradients", True):  # as those of `tf.recompute_grad` are
                return function(*args, **kwargs)
        return _Recomputed(self._scope, self._context, function, args, kwargs).results()


@custom_gradient
def _with_rows(x: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.math.multiply_no_nan(upstream, tf.cast(tf.minimum(kept, 1), x.dtype)), None

    return tf.identity(x), gradient


def _as_tensors(function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return arguments as a `tf.function` passes them on: arrays as tensors, all of them if it has a signature."""
    if function.input_signature is None:
        return tf.nest.map_structure(lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, (args, kwargs))
    given = inspect.signature(function.python_function).bind(*args, **kwargs).args
    return tf.nest.map_structure(_of_type, given, tuple(function.input_signature)), {}


def _of_type(x: Any, spec: tf.TypeSpec) -> Any:
    return tf.convert_to_tensor(x, spec.dtype) if isinstance(spec, tf.TensorSpec) else x


class _Recomputed:
    """A part of a replica that stores nothing for its gradient, and is computed once more for it.

    Assignments and added losses of the first run count. The second run sees the same values as the first.
    """

    def __init__(
        self, scope: ReplicaScope, context: Context, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]
    ) -> None:
        self._scope, self._context, self._function = scope, context, function
        self._arguments = keras.tree.map_structure(_as_value, (args, kwargs))
        before, reads = dict(scope.state_mapping), scope.num_reads()
        with tf.GradientTape() as tape:
            self._results = function(*self._arguments[0], **self._arguments[1])
        self._variables = tape.watched_variables()  # that it reads itself: tables, and variables unknown to Keras
        read = [number for number, times in scope.num_reads().items() if times > reads.get(number, 0)]
        self._seen = {number: before[number] for number in read if number in before}

    def results(self) -> Any:
        """Return the results of the body, with a custom gradient."""
        given = [*_tensors(self._arguments), *self._seen.values()]
        return _with_tensors(self._results, custom_gradient(self._with_gradient)(*given))

    def _with_gradient(self, *given: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            with tf.control_dependencies(upstream):  # not before the backward pass arrives here
                inputs = [tf.identity(x) for x in given]
            sources = [*floating(inputs), *variables]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                again = _tensors(self._again(inputs))
            results = [i for i, x in enumerate(again) if floating([x])]
            targets, of_targets = [again[i] for i in results], [upstream[i] for i in results]
            found = tape.gradient(targets, sources, of_targets, tf.UnconnectedGradients.ZERO)
            with tf.control_dependencies(found):  # the next part is computed again when this one is released
                left = iter([tf.identity(dense(x)) for x in found])
            of_inputs = [next(left) if floating([x]) else None for x in inputs]
            return (of_inputs, list(left)) if variables else of_inputs

        for variable in self._variables:
            variable.read_value()  # so that the custom gradient has one for it
        return _tensors(self._results), gradient

    def _again(self, inputs: Sequence[tf.Tensor]) -> Any:
        number = len(inputs) - len(self._seen)
        args, kwargs = _with_tensors(self._arguments, inputs[:number])
        scope = self._scope.again(dict(zip(self._seen, inputs[number:], strict=True)))
        with self._context(scope):
            return self._function(*args, **kwargs)


def _as_value(x: Any) -> Any:
    return tf.convert_to_tensor(x) if isinstance(x, keras.Variable) else x


def _tensors(structure: Any) -> list[tf.Tensor]:
    """Return the tensors of a structure, with the components of composite ones."""
    return [x for x in tf.nest.flatten(structure, expand_composites=True) if tf.is_tensor(x)]


def _with_tensors(structure: Any, tensors: Sequence[tf.Tensor]) -> Any:
    """Return a structure with these tensors in their places: the inverse."""
    given = iter(tensors)
    flat = [next(given) if tf.is_tensor(x) else x for x in tf.nest.flatten(structure, expand_composites=True)]
    return tf.nest.pack_sequence_as(structure, flat, expand_composites=True)
