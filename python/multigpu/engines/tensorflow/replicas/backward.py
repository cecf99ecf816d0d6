"""Run a template forward, and if gradients are needed, backward on the same devices.

A gradient tape differentiates outside of any device scope, so the backward ops of all replicas would run on one device.
So each replica is one op for the outer tape, and its gradient uses its own tape, on its own device: first order from
the forward pass, second order by a second run under a tape.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense
from multigpu.engines.tensorflow.replicas.run import Run
from multigpu.engines.tensorflow.replicas.tapes import (
    Differentiable,
    Gradient,
    floating,
    release_with_the_verb,
    untaped,
)

R = TypeVar("R", bound=Run)


def run_replica(run: R, arrived: Sequence[tf.Tensor]) -> tuple[R, list[tf.Tensor]]:
    """Return the run with what it has shown, and results for packed weights and other inputs.

    The results are differentiable to any order: outputs and losses, not the updates of the state.
    """
    runs: list[R] = []
    all_results: list[tf.Tensor] = []

    @custom_gradient
    def forward(*arrived: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        done, first = run.forward(arrived)
        runs.append(done)
        made, results = [first], first.results
        release_with_the_verb(made)
        all_results.extend(results)
        differentiable = done.differentiable(results)
        return [results[i] for i in differentiable], Backward(done, arrived, results, made).gradient

    with tf.device(run.device):
        given = forward(*arrived)
    differentiable = dict(zip(runs[0].differentiable(all_results), given, strict=True))
    return runs[0], [differentiable.get(i, x) for i, x in enumerate(all_results)]


@dataclass(frozen=True)
class Backward:
    """The differentiation of one run.

    Its parts are the sources of gradients: all inputs, and the tables that it reads itself.

    Attributes:
        run: the run to differentiate.
        arrived: packed weights and other inputs.
        results: the results for these inputs.
        made: its forward pass, which can be used once. Empty when it was released.
    """

    run: Run
    arrived: Sequence[tf.Tensor]
    results: Sequence[tf.Tensor]
    made: list[Differentiable]

    def gradient(self, *upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
        """Return the gradients of packed weights and inputs, and of tables, if there are any."""
        used = self.run.used(self.results)
        given = dict(zip(self.run.differentiable(self.results), upstream, strict=True))
        with tf.device(self.run.device):
            gradients = self._first_order(used, [dense(given[i]) for i in used])
            num_arrived = len(self.arrived)
            of_tables = self.run.of_all(gradients[num_arrived:], used)
        return (gradients[:num_arrived], [of_tables.get(id(v)) for v in variables]) if variables else gradients

    def _first_order(self, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> list[Gradient]:
        """Return the gradients of all parts, which can be differentiated again."""
        made = self.made.pop() if self.made else self.run.forward(self.arrived)[1]
        gradients = self.run.gradients(made, used, untaped(upstream))
        for group, device in self.run.leaving_together(len(self.arrived)):
            present = [part for part in group if gradients[part] is not None]
            with tf.device(device):
                differentiable = self._differentiable(gradients, present, used, upstream)
            for part, gradient in zip(present, differentiable, strict=True):
                gradients[part] = gradient
        return gradients

    def _differentiable(
        self, gradients: Sequence[Gradient], parts: Sequence[int], used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[Gradient]:
        """Return the same gradients of these parts, as one op that has a gradient."""
        if not parts:
            return []

        @custom_gradient
        def first_order(*given: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            def again(*upstream: tf.Tensor) -> list[Any]:
                self.run.structure.begin_after(first_pass)
                return self._second_order(used, given[: len(given) - len(tables)], parts, upstream)

            return [_values(gradients[part]) for part in parts], again

        tables, first_pass = self.run.shown.tables, self.run.structure.number
        values = first_order(*self.arrived, *upstream, *tables)
        return [_with_values(gradients[part], x) for part, x in zip(parts, values, strict=True)]

    def _second_order(
        self, used: Sequence[int], arguments: Sequence[tf.Tensor], parts: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[Any]:
        """Return gradients of some parts' gradients, for the arguments and tables, by another run of the replica."""
        with tf.device(self.run.device), tf.GradientTape() as tape:
            tape.watch(floating(arguments))
            again = self.run.tape(arguments[: len(self.arrived)])
            gradients = self.run.gradients(again, used, arguments[len(self.arrived) :], noted=False)
            if any(gradients[part] is None for part in parts):
                raise refuse(
                    "derivatives of a parallel model by `tf.GradientTape`, one within another for higher orders",
                    "a `tf.autodiff.ForwardAccumulator`, inside of which TensorFlow's tapes record nothing",
                    "Use tapes, or call the template, which runs on one device.",
                )
            targets = [_values(gradients[part]) for part in parts]
            sources = [*arguments, *self.run.shown.tables]
            found, of_again = tape.gradient(targets, [sources, again.sources], [dense(x) for x in upstream])
            self.run.note_second_order(used, parts, of_again)
            return found


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: tf.Tensor | tf.IndexedSlices, values: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """Return rows with these values if the gradient was rows: the inverse."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
