"""The run of a template on its devices: a function of weights and other inputs, to be differentiated."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import tensorflow as tf

from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.devices.logical import short_name
from multigpu.engines.tensorflow.private_api.gradients import dense
from multigpu.engines.tensorflow.replicas.tapes import Differentiable, Gradient, is_differentiable
from multigpu.engines.tensorflow.replicas.traced import Traced
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.packing import Packing
from multigpu.engines.tensorflow.weights.rows import together


@dataclass(frozen=True)
class Run(ABC):
    """A function to differentiate: of packed weights and other inputs, which arrived on devices.

    Attributes:
        device: name of the device for ops without another device.
        structure: the facts about the gradient that owners need besides its buffers.
        workers: the workers over which gradients are reduced.
        packing: what opens and packs buckets on every device.
        num_runs: the number of runs that share this worker's batch.
    """

    device: str
    structure: GradientStructure
    workers: Reduction
    packing: Packing
    num_runs: int

    @property
    def num_slices(self) -> int:
        """The number of slices that it runs, whose results follow each other."""
        return 1

    @property
    @abstractmethod
    def shown(self) -> Traced:
        """The facts that are known after the forward pass."""

    @abstractmethod
    def forward(self, arrived: Sequence[tf.Tensor]) -> tuple[Self, Differentiable]:
        """Return the run with what it has shown, and its results, to be differentiated once, on no tape around."""

    @abstractmethod
    def tape(self, arrived: Sequence[tf.Tensor]) -> Differentiable:
        """Return its results, to be differentiated once, with gradients of the gradient."""

    @abstractmethod
    def gradients(
        self, made: Differentiable, used: Sequence[int], upstream: Sequence[tf.Tensor], noted: bool = True
    ) -> list[Gradient]:
        """Return the gradients of all inputs and tables: None if nothing depends on it, rows if rows were looked up.

        Args:
            made: the forward pass.
            used: the numbers of results.
            upstream: their gradients.
            noted: whether owners learn which weights have a gradient.
        """

    @abstractmethod
    def note_second_order(self, used: Sequence[int], parts: Sequence[int], of_sources: Sequence[Gradient]) -> None:
        """Record the weights on which some parts' gradients depend. None if they depend on no source."""

    @abstractmethod
    def leaving_together(self, num_arrived: int) -> list[tuple[list[int], str]]:
        """Return the numbers of the gradients that leave together, with their devices."""

    def differentiable(self, results: Sequence[tf.Tensor]) -> list[int]:
        """Return the numbers of the results that may have a gradient."""
        each, first = len(results) // self.num_slices, self.shown.layout.num_differentiable
        return [number for number, x in enumerate(results) if number % each < first and is_differentiable(x)]

    def used(self, results: Sequence[tf.Tensor]) -> list[int]:
        """Return the numbers of the results from which a gradient comes back."""
        each, differentiable = len(results) // self.num_slices, self.differentiable(results)
        return [number for number in differentiable if number % each in self.structure.used] or differentiable

    def of_all(self, of_tables: Sequence[Gradient], used: Sequence[int]) -> dict[int, Gradient]:
        """Return the gradient of each table, by its id, from all runs of all workers, for the last run."""
        found: dict[int, Gradient] = {}
        num_runs = 1 if self.shown.layout.same.issuperset(used) else self.num_runs  # these are those of the first run
        for position, (table, gradient) in enumerate(zip(self.shown.tables, of_tables, strict=True)):
            gradients = self.structure.of_replicas(id(table), gradient, num_runs)
            if gradients:
                owner = short_name(table.device)  # the name that all workers use
                add_up = functools.partial(together, rows=self.shown.rows_of(table))
                in_rows = all(isinstance(each, tf.IndexedSlices) for each in gradients)
                with tf.device(owner):
                    here = add_up(gradients) if in_rows else tf.add_n([dense(each) for each in gradients])
                    found[id(table)] = self.workers.rows(here, add_up, owner, f"table {position}")
        return found
