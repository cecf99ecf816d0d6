"""Batches on the mesh, of any number of rows: filled up to go there, and cut to what counts inside of the step."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.sparse import JAXSparse

from multigpu.engines.jax.layout import Layout, put


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["count"])
@dataclass(frozen=True)
class Rows:
    """An array of a batch on the mesh.

    Attributes:
        value: the array, with zeros at its end where the devices would not divide its rows.
        count: how many rows count, or None where it has none. A step is compiled once for each, as on one device.
    """

    value: Any
    count: int | None


def send(batch: Any, layout: Layout, fill: bool) -> Any:
    """A batch on the mesh, to be opened in the step.

    Args:
        batch: arrays.
        layout: of the mesh.
        fill: whether rows are filled up until the devices divide them, or else lie in fewer parts of one size.
    """
    return jax.tree.map(partial(_send, layout=layout, fill=fill), batch, is_leaf=is_sparse)


def _send(x: Any, layout: Layout, fill: bool) -> Rows:
    if is_sparse(x):
        return Rows(jax.tree.map(lambda leaf: put(leaf, layout.copied), x), None)
    x = x if isinstance(x, jax.Array) else np.asarray(x)
    if not x.ndim or not x.shape[0]:
        return Rows(put(x, layout.copied), None)
    count = x.shape[0]
    missing = -count % layout.mesh.size
    if not fill or not missing:
        return Rows(put(x, layout.rows(count)), count)
    filled = np.pad(np.asarray(x), [(0, missing)] + [(0, 0)] * (x.ndim - 1))
    return Rows(put(filled, layout.divided), count)


def open_rows(batch: Any, layout: Layout) -> Any:
    """The batch inside of a compiled step: the rows that count, each where it is."""

    def open_one(rows: Rows) -> Any:
        if rows.count is None or rows.count == rows.value.shape[0]:
            return rows.value
        return jax.lax.with_sharding_constraint(rows.value[: rows.count], layout.divided)

    return jax.tree.map(open_one, batch, is_leaf=lambda leaf: isinstance(leaf, Rows))


def divide(x: Any, layout: Layout) -> Any:
    """An array inside of a function of the user's, compiled or not, with its rows divided."""
    return jax.lax.with_sharding_constraint(x, layout.rows(x.shape[0])) if getattr(x, "ndim", 0) and x.shape[0] else x


def merge(outputs: Any, layout: Layout) -> Any:
    """Outputs as they leave a compiled step, where parts have to be of one size."""

    def merge_one(x: Any) -> Any:
        here = x.ndim and layout.copied.is_fully_addressable
        return jax.lax.with_sharding_constraint(x, layout.rows(x.shape[0]) if here else layout.copied)

    return jax.tree.map(merge_one, outputs)


def is_sparse(x: Any) -> bool:
    """Whether it is a sparse array, whose parts have no rows of the batch."""
    return isinstance(x, JAXSparse)
