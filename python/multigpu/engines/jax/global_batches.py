"""Global batches of several workers: each adds its own rows, of any number, or all have the same rows."""

import ast
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.experimental.sparse import JAXSparse

from multigpu.base.refusal import refuse
from multigpu.engines.jax.layout import Layout
from multigpu.engines.jax.placement import layout_of
from multigpu.engines.jax.rows import Rows, padded, send
from multigpu.engines.jax.workers import name_of
from multigpu.plan.plan import Plan
from multigpu.private_api.data_adapters import DataAdapter

FAILED, ENDED = -1, -2  # sent instead of a number of rows
SHAPES_SIZE = 4096  # bytes of the text in which shapes are sent


class GlobalBatches(DataAdapter):
    """A data source for Keras' loop on several workers, which end together.

    A worker that runs out of rows continues without any, until all workers have run out.

    Attributes:
        num_batches: the largest number of batches of a worker. None if one does not know its number.
    """

    num_batches: int | None = None

    def __init__(self, given: DataAdapter, plan: Plan, own: bool) -> None:
        self._given, self._plan, self._own = given, plan, own
        self.on_epoch_begin, self.on_epoch_end = given.on_epoch_begin, given.on_epoch_end  # a dataset may shuffle
        told = process_allgather(np.int32(-1 if given.num_batches is None else given.num_batches))
        self.num_batches = None if (told < 0).any() else int(told.max())

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return the batches of all workers, on the mesh."""
        layout, batches, last = layout_of(self._plan), iter(self._given.get_jax_iterator()), None
        while True:
            try:
                batch = next(batches, None)
            except Exception:
                self._tell(FAILED, None)
                raise
            last = last if batch is None else batch
            rows = ENDED if batch is None else next(len(x) for x in keras.tree.flatten(batch) if x is not None)
            counts, last = self._tell(rows, last)
            if all(count == ENDED for count in counts):
                return
            counts = tuple(max(count, 0) for count in counts)
            if any(counts):
                yield _joint(last, counts, layout) if self._own else send(last, layout)

    def _tell(self, rows: int, batch: Any) -> tuple[tuple[int, ...], Any]:
        """Exchange the numbers of rows. Return that of each worker, and the batch: a worker without rows fits its own.

        Raises:
            RuntimeError: the data of another worker raised an error.
            ValueError: the batches of the workers do not fit together.
        """
        kind = [(x.shape[1:], str(x.dtype)) for x in keras.tree.flatten(batch) if x is not None]
        told = process_allgather(np.array([rows, zlib.crc32(repr(kind).encode()) >> 1, len(kind)], np.int32))
        counts, kinds, lengths = told.T
        if rows != FAILED and (counts == FAILED).any():
            failed = name_of(counts.argmin(), self._plan)
            raise refuse(
                "data from all workers",
                f"an error on {failed}",
                "Correct that error, and restart all workers.",
                RuntimeError,
            )
        other = (kinds != kinds[counts.argmax()]) & ((counts > 0) | (lengths != lengths[counts.argmax()]))
        odd = np.flatnonzero(other | (0 if self._own else counts != counts[0]))
        if odd.size and rows != FAILED and (counts > 0).any():
            raise refuse(
                f"the same shapes and types of arrays{'' if self._own else ', and as many rows,'} on all workers",
                f"different ones on {name_of(odd[0], self._plan)} and on {name_of(counts.argmax(), self._plan)}",
                "Give each worker at least one batch, with rows of one length. If each worker has its own rows, set "
                "the auto-shard policy of the dataset to OFF.",
            )
        if rows != FAILED and (counts > 0).any() and (kinds != kinds[0]).any():
            texts = process_allgather(np.frombuffer(repr(kind).encode().ljust(SHAPES_SIZE), np.uint8))
            if rows <= 0:
                kinds_in_use = iter(ast.literal_eval(texts[counts.argmax()].tobytes().decode()))
                batch = jax.tree.map(lambda _: _without_rows(*next(kinds_in_use)), batch)
        return tuple(map(int, counts)), batch


def _without_rows(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.zeros((0, *shape), dtype)


def _joint(batch: Any, counts: tuple[int, ...], layout: Layout) -> Any:
    """Return the rows of all workers, one worker after the other. Each worker pads its rows to the same number."""
    if any(isinstance(x, JAXSparse) for x in jax.tree.leaves(batch, is_leaf=lambda x: isinstance(x, JAXSparse))):
        expected = "dense arrays in a worker's own rows, which are joined with those of the others"
        raise refuse(expected, "a sparse array", "Convert it, or give all workers the same arrays.")
    devices = layout.mesh.size // len(counts)
    size, own = max(counts) + -max(counts) % devices, counts[jax.process_index()]

    def join(x: Any) -> Rows:
        filled = padded(x[:own], size - own).astype(jax.dtypes.canonicalize_dtype(x.dtype))
        return Rows(jax.make_array_from_process_local_data(layout.divided, filled), counts)

    return jax.tree.map(join, batch)
