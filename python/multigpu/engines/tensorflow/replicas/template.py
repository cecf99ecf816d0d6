"""Split the template for one call: variables to send, variables to keep, and layers that need all replicas."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import keras

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.replicas.sync_batch_norm import SyncBatchNorm
from multigpu.engines.tensorflow.weights.embedding_tables import Tables
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import sublayers, wants_jit

T = TypeVar("T")


class OfTrace(NamedTuple):
    """The facts that a trace shows about a replica that then runs op by op.

    Attributes:
        ways: how rows of each copy of weights and tables are looked up, by their ids.
        same: the places of outputs that no row reaches, as `OutputLayout.same`.
        without_rank: the places of outputs with an unknown number of axes, as `OutputLayout.without_rank`.
    """

    ways: Mapping[int, Sequence[Rows]] = {}  # it is not changed
    same: Collection[int] = ()
    without_rank: Collection[int] = ()


@dataclass(frozen=True)
class TemplateState:
    """The template in one call.

    Attributes:
        model: the model itself.
        layers: all layers inside of it.
        weights: the variables that are trained and sent. Gradients flow back to them. A weight whose lookups one device
            keeps apart is there several times, and each time that a layer reads it, it reads the next copy.
        state: the template's other variables.
        statistics: the layers that need statistics of the global batch.
        tables: the layers whose tables are not sent.
        jit_compile: whether XLA compiles the replicas.
    """

    model: keras.Layer
    layers: Sequence[keras.Layer]
    weights: Sequence[keras.Variable]
    state: Sequence[keras.Variable]
    statistics: SyncBatchNorm
    tables: Tables
    jit_compile: bool

    @classmethod
    def of(cls, template: keras.Layer, plan: Plan) -> "TemplateState":
        """Return the state of a template now: layers may be frozen or unfrozen between calls."""
        layers = sublayers(template)
        statistics, tables = SyncBatchNorm(layers), Tables([] if plan.groups else layers)
        return cls(
            model=template,
            layers=layers,
            weights=tables.without(template.trainable_variables),
            state=tables.without(template.non_trainable_variables),
            statistics=statistics,
            tables=tables,
            jit_compile=not (statistics.layers or tables.layers or plan.groups) and wants_jit(template),
        )

    def with_copies(self, numbers: Mapping[int, int]) -> "TemplateState":
        """Return the state with so many copies of some weights, by their ids. Tables among them are sent as well."""
        sent = {number for number, times in numbers.items() if times > 1}
        tables = Tables(self.tables.layers, sent)
        weights = [w for w in tables.without(self.model.trainable_variables) for _ in range(numbers.get(id(w), 1))]
        return replace(self, weights=weights, tables=tables)

    def by_weight(self, of_copies: Sequence[T]) -> dict[int, list[T]]:
        """Return what belongs to the copies of each weight, by its id, given for all copies."""
        found: dict[int, list[T]] = {}
        for weight, value in zip(self.weights, of_copies, strict=True):
            found.setdefault(id(weight), []).append(value)
        return found

    @property
    def num_copies(self) -> Counter[int]:
        """The number of copies of each weight that is sent, by its id."""
        return Counter(map(id, self.weights))


def refuse_new_weights(template: keras.Layer, known: Collection[int]) -> None:
    """Raise an error for weights that were made in a replica: they would never be trained.

    Args:
        template: the template that was run.
        known: the ids of the variables that it had before.

    Raises:
        ValueError: there are such weights.
    """
    new = [variable.path for variable in template.variables if id(variable) not in known]
    if new:
        raise refuse(
            "a built model, whose weights exist",
            f"{template.name!r}, which made the weight {new[0]!r} when it was first called",
            "Call the template once on a batch, with the same `training`, before `multi_gpu_model()` and `compile()`.",
        )
