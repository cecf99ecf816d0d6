"""Compute added losses and layers' own state once for the global batch, on the merge device.

The numbers of slices do not tell the number of the batch: it may be a sum over rows, a mean, a masked mean, or anything
else. So a layer that adds a loss, or assigns a variable, is called once more, with merged inputs. The layers that it
calls are not called again: their outputs for the slices are merged instead. The call draws the noise of the replicas,
because it starts from the states that their generators had then.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.batches.masks_and_logits import with_all_attached, with_same_attached
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.replicas.inner_graphs import as_one_graph
from multigpu.engines.tensorflow.replicas.layer_calls import (
    LayerCall,
    LayerCalls,
    all_calls,
    other_calls,
    own_calls,
    tensors_of,
)
from multigpu.engines.tensorflow.replicas.parts import scopes_noted
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope, inside_replica
from multigpu.engines.tensorflow.replicas.template import TemplateState
from multigpu.engines.tensorflow.weights.place_locate import locate, read


class GlobalBatchCalls:
    """Calls to compute when the slices are merged, found in a run of the template on one slice.

    Attributes:
        losses: the numbers of the added losses that depend on rows, and are not known to be means over rows.
        variables: the assigned variables that depend on rows, and are not known to be means over rows.
        tensors: the tensors that replicas must return for these calls. Their slices are merged.
        noise: the states of generators that replicas must return. They are the same in all replicas.
    """

    def __init__(
        self,
        calls: LayerCalls,
        losses: Collection[int] = (),
        variables: Sequence[keras.Variable] = (),
        carried: Sequence[keras.Variable] = (),
        places: Collection[tuple[int, str]] = (),
    ) -> None:
        self.losses, self.variables, self._carried = losses, variables, carried
        ids = set(map(id, variables))
        self.calls = [
            call
            for call in all_calls(calls.root)
            if (call is calls.root or call.stands_alone)
            and any(_leaves(own, losses, ids, places) for own in own_calls(call))
        ]
        self._root = calls.root
        needed = [tensor for call in self.calls for tensor in _needed(call, is_root=call is calls.root)]
        self.tensors = list({id(tensor): tensor for tensor in needed}.values())
        states = [state for call in self.calls for state in _states(call, is_root=call is calls.root)]
        self.noise = list({id(state): state for state in states}.values())

    def compute(
        self,
        template: TemplateState,
        batch: CallArguments,
        merged: Sequence[tf.Tensor],
        noise: Sequence[tf.Tensor],
        workers: Reduction,
    ) -> tuple[dict[int, tf.Tensor], list[tuple[keras.Variable, tf.Tensor]]]:
        """Return losses of the global batch, by their numbers, and variables with their new values.

        Args:
            template: the state of the template.
            batch: the global batch.
            merged: the merged `tensors`.
            noise: the values of `noise`.
            workers: the workers whose rows belong to the batch.
        """
        known = {id(slice_): workers.all_rows(x) for slice_, x in zip(self.tensors, merged, strict=True)}
        states = {id(of_slice): state for of_slice, state in zip(self.noise, noise, strict=True)}
        whole, scope = functools.partial(_whole, known), _GlobalBatchScope(workers, self._carried, states)
        losses: dict[int, tf.Tensor] = {}
        for call in self.calls:
            scope.calls = replay = _Replay(call, call is self._root, whole, scope.draw_on)
            scope.draw_on(call.draws_from, call.drawn_before)
            first = len(scope.losses)
            in_place = scopes_noted(lambda device: contextlib.nullcontext())
            with scope, inside_replica(), in_place, as_one_graph(scope), replay.noted(template.layers):
                if call is self._root:
                    args, kwargs = batch.rebuild([workers.all_rows(x) for x in batch.tensors])
                    template.model(*args, **kwargs)
                else:
                    training = {"training": batch.training} if batch.training is not None else {}
                    call.layer(*whole(call.args), **{**training, **whole(call.kwargs)})
            losses.update((number, scope.losses[first + new]) for number, new in replay.same_losses())
        variables = [(variable, scope.value_now(variable)) for variable in self.variables]
        return {number: losses[number] for number in self.losses}, variables


def depending_on(rows: Sequence[tf.Tensor]) -> Callable[[tf.Tensor], bool]:
    """Return a function: whether a tensor of the current graph depends on any of these. Eagerly, all may depend."""
    if tf.executing_eagerly():
        return lambda _: True
    dependent = set(map(id, rows))
    for op in tf.compat.v1.get_default_graph().get_operations():
        if any(id(x) in dependent for x in op.inputs):
            dependent.update(map(id, op.outputs))
    return lambda tensor: id(tensor) in dependent


class _Replay(LayerCalls):
    """Makes a known call again. Inner calls that stand alone return their previous outputs."""

    def __init__(
        self, known: LayerCall, is_root: bool, merged: Callable[[Any], Any], draw_on: Callable[..., None]
    ) -> None:
        super().__init__(known.layer)
        self._merged, self._draw_on = merged, draw_on
        self._made_again = [(known, self.root)] if is_root else []
        self._to_come = [iter(known.inner if is_root else [dataclasses.replace(known, stands_alone=False)])]

    def same_losses(self) -> Iterator[tuple[int, int]]:
        """Return the numbers of the losses that were added again: as they are known, and now."""
        for known, made in self._made_again:
            if len(known.losses) != len(made.losses):
                raise other_calls(known.layer)
            yield from zip(known.losses, made.losses, strict=True)

    @contextlib.contextmanager
    def _running(self, made: LayerCall) -> Iterator[bool]:
        known = next(self._to_come[-1], None)
        if known is None or known.layer is not made.layer:
            raise other_calls(made.layer)
        if known.stands_alone:
            self._draw_on(known.draws_from, known.drawn_after)
            made.outputs = self._merged(known.outputs)
            yield True
            return
        self._made_again.append((known, made))
        self._to_come.append(iter(known.inner))
        with super()._running(made):
            yield False
        self._to_come.pop()


class _GlobalBatchScope(ReplicaScope):
    """A scope with the variables as they are, which keeps assigned values aside. Gradients come from all workers."""

    def __init__(self, workers: Reduction, carried: Sequence[keras.Variable], states: Mapping[int, tf.Tensor]) -> None:
        super().__init__([], [], carried)
        self._workers = workers
        self._states = states

    def draw_on(self, generators: Collection[int], states: Mapping[int, tf.Tensor]) -> None:
        """Set generators to their states in a slice. Without such a state, they have that at the start of the step."""
        for number in generators:
            if number in states:
                self.state_mapping[number] = self._states[id(states[number])]
            else:
                self.state_mapping.pop(number, None)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Return the assigned value, or None: Keras then reads the real one."""
        if self._workers.several and variable.trainable and id(variable) not in self.state_mapping:
            label = f"global batch {variable.path}"
            self.state_mapping[id(variable)] = self._workers.reduced(read(variable), locate(variable), label)
        return super().get_current_value(variable)


def _whole(known: Mapping[int, tf.Tensor], structure: Any) -> Any:
    """Return the same structure, with tensors of the global batch and their attached masks and logits.

    Args:
        known: the tensors of the global batch, by the ids of the slices.
        structure: slices, and anything else.
    """

    def one(leaf: Any) -> Any:
        return with_same_attached(lambda x: known[id(x)], leaf) if tf.is_tensor(leaf) else leaf

    return keras.tree.map_structure(one, structure)


def _leaves(
    call: LayerCall, losses: Collection[int], variables: Collection[int], places: Collection[tuple[int, str]]
) -> bool:
    """Return whether a call itself adds such a loss, assigns such a variable, or sets such an attribute."""
    added, assigned = (loss in losses for loss in call.losses), (id(v) in variables for v in call.assigned)
    return any(added) or any(assigned) or any(each.place in places for each in call.kept)


def _states(call: LayerCall, is_root: bool) -> Iterator[tf.Tensor]:
    """Return the states of generators at the start of a call, and after each inner call that is not made again."""
    yield from (call.drawn_before[number] for number in call.draws_from & call.drawn_before.keys() if not is_root)
    for inner in _not_made_again(call):
        yield from (inner.drawn_after[number] for number in inner.draws_from)


def _needed(call: LayerCall, is_root: bool) -> list[tf.Tensor]:
    """Return the tensors of slices that must be merged to make a call again. The global batch exists already."""
    given = [] if is_root else tensors_of((call.args, call.kwargs))
    return with_all_attached([*given, *(x for inner in _not_made_again(call) for x in tensors_of(inner.outputs))])


def _not_made_again(call: LayerCall) -> Iterator[LayerCall]:
    """Return the inner calls whose outputs are known when a call is made again."""
    return (inner for own in own_calls(call) for inner in own.inner if inner.stands_alone)
