"""Record calls of layers while the template runs: inputs and outputs, added losses, assigned state."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.batches.call_arguments import flatten_composites
from multigpu.engines.tensorflow.private_api.gradients import is_watched
from multigpu.engines.tensorflow.private_api.graphs import ops_that_stop_gradients
from multigpu.engines.tensorflow.replicas.kept_tensors import Attributes, Kept
from multigpu.private_api.callers import is_assigned_by_keras
from multigpu.private_api.layers import runs_code_of_keras, sublayers

SUMS_OVER_VALUES = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)


@dataclass(eq=False)
class LayerCall:
    """One call of a layer.

    Attributes:
        layer: the layer that was called.
        args: its arguments.
        kwargs: its named arguments.
        outputs: its outputs.
        inner: the calls that it made of other layers, in order.
        losses: the numbers, among all added losses, of the losses that it added itself.
        assigned: the variables that it assigned itself.
        kept: the attributes of its layer that it set to tensors.
        ops: the numbers of the ops that it made in the current graph.
        drawn_before: the states, before the call, of the generators of noise in use, by the ids of their variables.
        drawn_after: the states after the call.
        fails: whether it ends in an error.
        is_watched: whether a tape of the template's own watches an input: its outputs may have a gradient there.
        stands_alone: whether all of its input and output tensors have rows, so that slices of them can be merged.
    """

    layer: keras.Layer
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: Any = None
    inner: list["LayerCall"] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    assigned: list[keras.Variable] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    ops: range = range(0)
    drawn_before: dict[int, tf.Tensor] = field(default_factory=dict)
    drawn_after: dict[int, tf.Tensor] = field(default_factory=dict)
    fails: bool = False
    is_watched: bool = False
    stands_alone: bool = False

    @property
    def draws_from(self) -> set[int]:
        """The ids of the generators from which the call draws."""
        return {number for number, x in self.drawn_after.items() if x is not self.drawn_before.get(number)}


class LayerCalls:
    """The calls of one run of a template, as a tree.

    Attributes:
        root: the call of the template itself. Its arguments and outputs are not recorded.
        means: the numbers of the losses that are known to be means over rows: Keras' activity regularizers, which are
            sums over all values, divided by the rows.
        adding: the layers that add losses, one for each loss.
        kept: the attributes that are set to tensors at its end, each once, with their values before.
        places_with_rows: the places of those whose slices can be merged. None before it was asked.
        assigned_by_users: the ids of the variables that code outside of Keras assigns, whatever layer owns them.
        with_custom_gradient: the layers whose gradient does not follow from their outputs: their code stops it, or
            calls functions with a custom gradient of the user's.
        drawn: returns the states of the generators of noise in use, by the ids of their variables.
    """

    def __init__(self, template: keras.Layer) -> None:
        self.root = LayerCall(template)
        self.means: set[int] = set()
        self.adding: list[keras.Layer] = []
        self.assigned_by_users: set[int] = set()
        self.with_custom_gradient: list[keras.Layer] = []
        self.drawn: Callable[[], dict[int, tf.Tensor]] = dict
        self.kept: list[Kept] = []
        self.places_with_rows: set[tuple[int, str]] | None = None
        self._stack = [self.root]
        self._means_to_come = 0
        self._thread = threading.get_ident()
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    @contextlib.contextmanager
    def noted(self, layers: Sequence[keras.Operation]) -> Iterator[None]:
        """Record calls of these layers or operations inside a `with` block."""
        with entered(replaced(layer, "call", self._noting(layer)) for layer in layers):
            attributes = Attributes(self.root.layer)
            yield
            self.root.kept = attributes.kept()
            self.kept = self._still_kept()
            if self._graph:
                self.with_custom_gradient += map(self.innermost, ops_that_stop_gradients(self._graph))

    @property
    def kept_with_rows(self) -> list[Kept]:
        """The attributes whose slices can be merged."""
        return [each for each in self.kept if each.place in (self.places_with_rows or ())]

    def _still_kept(self) -> list[Kept]:
        last: dict[tuple[int, str], Kept] = {}
        for call in reversed(list(all_calls(self.root))):  # an outer call ends after its inner calls
            for each in call.kept:
                last[each.place] = last.get(each.place, each).after(each)
        return [each for each in last.values() if vars(each.layer).get(each.name) is each.value]

    def note_loss(self) -> None:
        """Record that the running layer adds a loss, or the activity regularizer of the layer that has just run."""
        number, running = len(self.adding), self._stack[-1]
        if self._means_to_come:
            self._means_to_come -= 1
            self.means.add(number)
        else:
            running.losses.append(number)
        self.adding.append(running.layer if number not in self.means else running.inner[-1].layer)

    def order_of_losses(self) -> list[int]:
        """Return the numbers of the added losses in the order in which Keras collects them: layer by layer."""
        layers = [self.root.layer, *sublayers(self.root.layer)]
        places = {id(layer): place for place, layer in enumerate(layers)}
        return sorted(range(len(self.adding)), key=lambda number: places.get(id(self.adding[number]), len(places)))

    def note_assigned(self, variable: keras.Variable) -> None:
        """Record that the running layer assigns a variable."""
        self._stack[-1].assigned.append(variable)
        if not runs_code_of_keras(self._stack[-1].layer) or not is_assigned_by_keras():
            self.assigned_by_users.add(id(variable))

    def note_custom_gradient(self) -> None:
        """Record that the running layer calls a function with a custom gradient of the user's."""
        self.with_custom_gradient.append(self._stack[-1].layer)

    def innermost(self, op: tf.Operation) -> keras.Operation:
        """Return the innermost layer or operation in whose call an op was made."""
        number = op.graph.get_operations().index(op)
        return [call for call in all_calls(self.root) if call is self.root or number in call.ops][-1].layer

    def _noting(self, layer: keras.Operation) -> Callable[..., Any]:
        """Return a replacement of a layer's method, with the signature that Keras looks for."""
        return functools.update_wrapper(functools.partial(self._note, layer, layer.call), layer.call)

    def _note(self, layer: keras.Layer, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:  # such as one that prepares batches
            return call(*args, **kwargs)
        made = LayerCall(layer, args, kwargs, drawn_before=self.drawn())
        self._stack[-1].inner.append(made)
        self._means_to_come, first, attributes = 0, self._num_ops(), Attributes(layer)
        with self._running(made) as is_known:
            made.outputs = made.outputs if is_known else call(*args, **kwargs)
        taken = flatten_composites(tensors_of((args, kwargs)))
        made.is_watched = any(is_watched(x) for x in taken if isinstance(x, tf.Tensor))  # and not weights
        made.drawn_after = self.drawn()
        made.ops, made.kept = range(first, self._num_ops()), attributes.kept()
        regularized = type(getattr(layer, "activity_regularizer", None)) in SUMS_OVER_VALUES
        self._means_to_come = len(tensors_of(made.outputs)) if regularized else 0
        return made.outputs

    @contextlib.contextmanager
    def _running(self, made: LayerCall) -> Iterator[bool]:
        """Run a call inside a `with` block. Return whether its outputs are known, so that it is not made."""
        self._stack.append(made)
        made.fails = True
        try:
            yield False
            made.fails = False
        finally:
            self._stack.pop()

    def _num_ops(self) -> int:
        return self._graph.version if self._graph else 0


def tensors_of(structure: Any) -> list[tf.Tensor]:
    """Return the tensors in a structure, each composite one as one."""
    return [leaf for leaf in keras.tree.flatten(structure) if tf.is_tensor(leaf)]


def all_calls(call: LayerCall) -> Iterator[LayerCall]:
    """Return a call and all calls inside of it, in order."""
    yield call
    for inner in call.inner:
        yield from all_calls(inner)


def in_order_of_results(*roots: LayerCall) -> Iterator[tuple[LayerCall, ...]]:
    """Return matching calls inside of some, inner ones before outer ones. It ends where they call other layers."""
    for inner in zip(*(each.inner for each in roots), strict=False):
        if any(each.layer is not inner[0].layer for each in inner):
            return
        yield from in_order_of_results(*inner)
        yield inner


def callables(layers: Sequence[keras.Layer]) -> list[keras.Operation]:
    """Return layers, and the operations of functional models among them, each once."""
    return list(dict.fromkeys(each for layer in layers for each in [layer, *getattr(layer, "operations", [])]))


def own_calls(call: LayerCall) -> Iterator[LayerCall]:
    """Return a call and the calls inside of it that do not stand alone, in order."""
    yield call
    for inner in call.inner:
        if not inner.stands_alone:
            yield from own_calls(inner)


def other_calls(layer: keras.Layer) -> ValueError:
    """Return the error for a template whose runs call different layers, from this layer on."""
    return refuse(
        "a template that calls the same layers each time, so that a loss or a state can be computed once for the "
        "global batch",
        f"{layer.name!r}, which was called in another way the second time",
        "Let `call` depend on its arguments alone, or give the variable `aggregation='mean'` or `'sum'`.",
    )
