"""Batches with any number of rows on the mesh: padded to be sent, and cut to the counted rows inside of the step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.sparse import JAXSparse
from jax.sharding import Sharding

from multigpu.engines.jax.layout import Layout, put


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["counts"])
@dataclass(frozen=True)
class Rows:
    """An array of a batch on the mesh.

    Attributes:
        value: the array, padded with zeros if the devices do not divide its rows.
        counts: the number of rows of each worker that count, or None for an array without rows. A step is compiled
            once for each combination, as on one device.
    """

    value: Any
    counts: tuple[int, ...] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows that count, as Keras asks for it."""
        return (sum(self.counts), *self.value.shape[1:]) if self.counts else self.value.shape

    dtype = property(lambda self: self.value.dtype)


def send(batch: Any, layout: Layout, at: Callable[[int], Sharding] | None = None) -> Any:
    """Return a batch on the mesh, to be opened in the step.

    Args:
        batch: arrays.
        layout: the layout of the mesh.
        at: the layout for a number of rows. None pads rows until the devices divide them.
    """

    def one(x: Any) -> Rows:
        if isinstance(x, Rows):  # of several workers
            return x
        if isinstance(x, JAXSparse):  # its parts have no rows of the batch
            return Rows(jax.tree.map(lambda leaf: put(leaf, layout.copied), x), None)
        x = x if isinstance(x, jax.Array) else np.asarray(x)
        if not x.ndim or not x.shape[0]:
            return Rows(put(x, layout.copied), None)
        count = x.shape[0]
        if at is None:
            missing = -count % layout.mesh.size
            return Rows(put(padded(x, missing) if missing else x, layout.divided), (count,))
        return Rows(put(x, at(count)), (count,))

    return jax.tree.map(one, batch, is_leaf=lambda x: isinstance(x, Rows | JAXSparse))


def padded(x: Any, missing: int) -> np.ndarray:
    """Return an array with more rows, of zeros."""
    return np.pad(np.asarray(x), [(0, missing)] + [(0, 0)] * (x.ndim - 1))


def open_rows(batch: Any, layout: Layout) -> Any:
    """Return the batch inside of a compiled step: the rows that count, each on its device."""

    def open_one(rows: Rows) -> Any:
        if rows.counts is None or sum(rows.counts) == len(rows.value):
            return rows.value
        parts = jax.numpy.split(rows.value, len(rows.counts))
        real = jax.numpy.concatenate([part[:count] for part, count in zip(parts, rows.counts, strict=True)])
        return jax.lax.with_sharding_constraint(real, layout.divided)

    return jax.tree.map(open_one, batch, is_leaf=lambda x: isinstance(x, Rows))


def divide(x: Any, layout: Layout) -> Any:
    """Return an array inside of a function, or for leaving a compiled step, divided if all parts have one size."""
    return jax.lax.with_sharding_constraint(x, layout.rows(x.shape[0])) if getattr(x, "ndim", 0) and x.shape[0] else x
