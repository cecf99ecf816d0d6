"""Trace a call from outside of any function as a separate function, so that its replicas run at the same time.

For a tape around it, a function is one op: the gradient is zero for each weight that leads to any of its results. One
device has no gradient for a weight that leads to none of the used results. So a weight that leads only to some results
passes a gate, which lets a gradient back if one of these results was used. So does a weight on which no derivative
depends, such as a last bias: one device has no gradient for it if a loss uses only derivatives.

The gradient of zeros, for results that are not used, may be NaN (see `Reach.cut`). Calls with such results run op by op
if a tape is around.
"""

import contextvars
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.base.replaced import set_to
from multigpu.engines.tensorflow.parallel.data_parallel import Given, Merged
from multigpu.engines.tensorflow.private_api.attached import logits_of, mask_of, with_logits, with_mask
from multigpu.engines.tensorflow.private_api.gradients import (
    is_taped,
    note_variables,
    tapes_of_their_own,
    with_gradient,
)
from multigpu.engines.tensorflow.private_api.graphs import ask_in_each_call
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.replicas.kept_tensors import Kept
from multigpu.engines.tensorflow.replicas.outputs import OutputLayout, is_constant
from multigpu.engines.tensorflow.replicas.tapes import is_differentiable
from multigpu.engines.tensorflow.replicas.traced import Reach, without_zeros
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure


@dataclass(frozen=True)
class Gate:
    """A variable that leads only to some results of a function, or to no derivative of them.

    Attributes:
        variable: the variable.
        results: the numbers of these results.
    """

    variable: tf.Variable
    results: frozenset[int]

    def __call__(self) -> tf.Tensor:
        """Return the variable's handle, as a call of the function receives it."""
        structure = _structure.get()
        self.variable.read_value()  # makes tapes watch it

        def let_back(upstream: tf.Tensor) -> tf.Tensor | None:
            return upstream if structure.any_used(self.results, id(self)) else None

        return with_gradient(self.variable.handle, let_back)


class Shown(NamedTuple):
    """The facts that a trace has shown, with the gates that it needs.

    Attributes:
        layout: the layout of the outputs.
        kept: the attributes of layers that it sets.
        gates: the gates.
        is_cut: whether it has not the gradient of one device.
    """

    layout: OutputLayout
    kept: Sequence[Kept]
    gates: Sequence[Gate]
    is_cut: bool


_structure: contextvars.ContextVar[GradientStructure] = contextvars.ContextVar("_structure")  # of the call's gradient


class CallAsFunction:
    """Calls `spread` in a function, which is traced for each kind of arguments."""

    def __init__(self, spread: Callable[..., Given]) -> None:
        self._spread = spread
        self._function = tf.function(self._call, autograph=False, reduce_retracing=True)
        self._kinds: dict[tuple, int] = {}  # by the values besides arguments on which a trace depends
        self._shown: weakref.WeakKeyDictionary[tf.Graph, Shown] = weakref.WeakKeyDictionary()  # by traces

    def __call__(self, args: tuple, kwargs: dict[str, Any], key: tuple) -> Given:
        """Return outputs and added losses.

        Args:
            args: the arguments of the call.
            kwargs: the named arguments of the call.
            key: the other values on which a trace depends.
        """
        shapes = [getattr(x, "shape", ()) for x in keras.tree.flatten((args, kwargs))]
        ranks = tuple(tf.TensorShape(shape).rank for shape in shapes)  # TensorFlow would take any for unknown
        # one number for all of it: what a function takes, TensorFlow looks at part by part, in each call
        kind = self._kinds.setdefault((ranks, key), len(self._kinds))
        taken = args, kwargs, _attached_to((args, kwargs)), kind
        function: Any = self._function.get_concrete_function(*taken)
        layout, kept, gates, is_cut = self._shown[function.graph]
        if is_cut and is_taped():
            return self._spread(args, kwargs, run_eagerly=True)
        note_variables(function)
        structure = GradientStructure()
        if gates:
            ask_in_each_call(function, {id(gate.variable.handle): gate for gate in gates})
            taken = *_leaving((args, kwargs), structure), *taken[2:]
        with set_to(_structure, structure):
            given = self._function(*taken)
        if gates:
            flat = tf.nest.flatten(given, expand_composites=True)
            watched = [structure.watch(x, n) if tf.is_tensor(x) else x for n, x in enumerate(flat)]
            given = tf.nest.pack_sequence_as(given, watched, expand_composites=True)
        outputs, attached, losses, of_kept = given
        for each, tensors in zip(kept, of_kept, strict=True):
            each.give(tensors)
        return Given(layout.with_constants(_with_attached(outputs, attached)), losses)

    def _call(self, args: tuple, kwargs: dict[str, Any], attached: list, kind: int) -> tuple:
        del kind  # part of TensorFlow's key for the trace
        args, kwargs = _with_attached((args, kwargs), attached)
        with tapes_of_their_own():  # the trace serves later calls, too
            merged = self._spread(args, kwargs)
        assert isinstance(merged, Merged)  # as always in a trace
        outputs = [x for x in keras.tree.flatten(merged.outputs) if not is_constant(x)]
        given = outputs, _attached_to(outputs), merged.losses, [each.tensors for each in merged.kept]
        flat, reach = tf.nest.flatten(given, expand_composites=True), merged.traced.reach
        assert reach is not None  # it was traced
        results = {number: x for number, x in enumerate(flat) if tf.is_tensor(x) and is_differentiable(x)}
        tensors = list(results.values())
        is_cut = any(_has_cut(number, tensors, merged, reach) for number in range(len(tensors)))
        shown = Shown(merged.traced.layout, merged.kept, _gates_of(results, merged, reach), is_cut)
        self._shown[tf.compat.v1.get_default_graph()] = shown
        return given


def _gates_of(results: Mapping[int, tf.Tensor], merged: Merged, reach: Reach) -> list[Gate]:
    """Return the gates that a trace needs."""
    reached: dict[int, tuple[tf.Variable, list[int]]] = {}
    for number, x in results.items():
        for weight in _behind(x, merged, reach):
            reached.setdefault(id(weight), (weight, []))[1].append(number)
    numbers = [] if merged.traced.global_batch.calls else reach.added()  # the global batch may read weights as well
    added = {id(backing_variable(merged.template.weights[number])) for number in numbers}
    gated = [(w, some) for number, (w, some) in reached.items() if len(some) < len(results) or number in added]
    return [Gate(weight, frozenset(some)) for weight, some in gated]


def _behind(tensor: tf.Tensor, merged: Merged, reach: Reach) -> list[tf.Variable]:
    """Return the weights that lead to a tensor of this trace, through replicas or read for the global batch."""
    template = merged.template
    captured = [(id(outside), inside) for outside, inside in tensor.graph.captures if outside.dtype == tf.resource]
    used, read = merged.structure.behind(tensor, [inside for _, inside in captured])
    through = [backing_variable(template.weights[number]) for number in reach.weights_of(used)]
    handles = {captured[number][0] for number in read} | {id(weight.handle) for weight in through}
    handles |= reach.tables_of(used)
    known = [*map(backing_variable, template.model.trainable_variables), *merged.traced.tables]
    return list({id(weight): weight for weight in known if id(weight.handle) in handles}.values())


def _has_cut(used: int, tensors: Sequence[tf.Tensor], merged: Merged, reach: Reach) -> bool:
    """Return whether gradients of zeros need not be zero, in replicas or behind them, if only one tensor is used."""
    of_replicas, x = merged.structure.behind(tensors[used], [])[0], tensors[used]
    return bool(reach.cut(of_replicas) or without_zeros(tensors, {used: x}, reach.has_custom_gradient))


def _leaving(arguments: tuple, structure: GradientStructure) -> tuple:
    """Return the same arguments, with a record of who uses their gradients: only a gradient of a gradient does."""

    def leaving(number: int, x: Any) -> Any:
        if not (isinstance(x, tf.Tensor) and is_differentiable(x)):
            return x
        return with_gradient(x, lambda upstream: structure.leaves(upstream, number))

    flat = [leaving(-1 - number, x) for number, x in enumerate(keras.tree.flatten(arguments))]
    return keras.tree.pack_sequence_as(arguments, flat)


def _attached_to(structure: Any) -> list[tuple[tf.Tensor | None, tf.Tensor | None]]:
    """Return the attached logits and masks of tensors, which a function loses in inputs and outputs."""
    return [(logits_of(x), mask_of(x)) for x in keras.tree.flatten(structure)]


def _with_attached(structure: Any, attached: list[tuple[tf.Tensor | None, tf.Tensor | None]]) -> Any:
    """Attach logits and masks again: the inverse of `_attached_to()`."""
    leaves = zip(keras.tree.flatten(structure), attached, strict=True)
    return keras.tree.pack_sequence_as(structure, [with_mask(with_logits(x, a), b) for x, (a, b) in leaves])
