"""The backward pass of a run: first order from the forward pass, second order by running it again under a tape."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient, dense
from multigpu.engines.tensorflow.replicas.tapes import Differentiable, Gradient, floating, untaped


class Run(Protocol):
    """A function to differentiate: of tensors that arrived on devices, packed weights and other inputs.

    Attributes:
        device: where ops go that name no other.
    """

    device: str

    @property
    def tables(self) -> Sequence[tf.Variable]:
        """Variables that it reads by itself, and to which gradients flow."""

    def forward(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Its results, to be differentiated once, to first order; on no tape that is around."""

    def tape(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Its results, to be differentiated once, with a gradient that has a gradient."""

    def used(self, results: Sequence[tf.Tensor]) -> list[int]:
        """Numbers of the results that a gradient comes back from."""

    def gradients(
        self, made: Differentiable, used: Sequence[int], upstream: Sequence[tf.Tensor], noted: bool = True
    ) -> list[Gradient]:
        """Of all that arrived and of the tables; None where nothing depends on it; rows where rows were looked up.

        Args:
            made: the forward pass.
            used: numbers of results.
            upstream: their gradients.
            noted: whether owners are told which weights have one.
        """

    def note_second_order(self, used: Sequence[int], parts: Sequence[int], of_sources: Sequence[Gradient]) -> None:
        """Notes which weights the gradients of some parts depend on; None where they do not depend on a source."""

    def departures(self, num_arrived: int) -> list[tuple[list[int], str]]:
        """Numbers of the gradients that leave together, and from which device."""

    def of_all(self, of_tables: Sequence[Gradient]) -> dict[int, Gradient]:
        """The gradient of each table, by its id, from all runs of all workers, once it is known."""


class Backward:
    """How one run is differentiated.

    Its parts are what a gradient is asked for: all that arrived, and the tables that it reads by itself.
    """

    def __init__(
        self, run: Run, arrived: Sequence[tf.Tensor], results: Sequence[tf.Tensor], made: list[Differentiable]
    ) -> None:
        """Takes the run.

        Args:
            run: what is differentiated.
            arrived: packed weights and other inputs.
            results: what it gave for them.
            made: its forward pass, which can be asked once; empty when that was released.
        """
        self._run = run
        self._arrived = arrived
        self._results = results
        self._made = made

    def gradient(self, *upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
        """Gradients of packed weights and inputs; and, where there are tables, of these."""
        used = self._run.used(self._results)
        with tf.device(self._run.device):
            gradients = self._first_order(used, [dense(upstream[i]) for i in used])
            num_arrived = len(self._arrived)
            of_tables = self._run.of_all(gradients[num_arrived:])
        return (gradients[:num_arrived], [of_tables.get(id(v)) for v in variables]) if variables else gradients

    def _first_order(self, used: Sequence[int], upstream: Sequence[tf.Tensor]) -> list[Gradient]:
        """Gradients of all parts, in turn differentiable."""
        made = self._made.pop() if self._made else self._run.forward(self._arrived)
        gradients = self._run.gradients(made, used, untaped(upstream))
        for group, device in self._run.departures(len(self._arrived)):
            present = [part for part in group if gradients[part] is not None]
            with tf.device(device):
                differentiable = self._differentiable(gradients, present, used, upstream)
            for part, gradient in zip(present, differentiable, strict=True):
                gradients[part] = gradient
        return gradients

    def _differentiable(
        self, gradients: Sequence[Gradient], parts: Sequence[int], used: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[Gradient]:
        """The same gradients of these parts, as one op that has a gradient."""
        if not parts:
            return []

        @custom_gradient
        def first_order(*given: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            again = functools.partial(self._second_order, used, given[: len(given) - len(tables)], parts)
            return [_values(gradients[part]) for part in parts], lambda *upstream: again(upstream)

        tables = self._run.tables
        values = first_order(*self._arrived, *upstream, *tables)
        return [_with_values(gradients[part], x) for part, x in zip(parts, values, strict=True)]

    def _second_order(
        self,
        used: Sequence[int],
        arguments: Sequence[tf.Tensor],
        parts: Sequence[int],
        upstream: Sequence[tf.Tensor],
    ) -> list[Any]:
        """Gradients of the gradients of some parts, for the arguments and the tables: the replica is run again."""
        with tf.device(self._run.device), tf.GradientTape() as tape:
            tape.watch(floating(arguments))
            again = self._run.tape(arguments[: len(self._arrived)])
            gradients = self._run.gradients(again, used, arguments[len(self._arrived) :], noted=False)
            if any(gradients[part] is None for part in parts):
                raise refuse(
                    "derivatives of a parallel model by `tf.GradientTape`, one within another for higher orders",
                    "a `tf.autodiff.ForwardAccumulator`, in which TensorFlow's tapes record nothing",
                    "Use tapes, or call the template, which runs on one device.",
                )
            targets = [_values(gradients[part]) for part in parts]
            sources = [*arguments, *self._run.tables]
            found, of_again = tape.gradient(targets, [sources, again.sources], [dense(x) for x in upstream])
            self._run.note_second_order(used, parts, of_again)
            return found


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: tf.Tensor | tf.IndexedSlices, values: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    """The inverse: rows with these values, if it was rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
