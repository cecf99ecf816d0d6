"""Several processes that train together: what they compare, and what they take from the chief."""

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather

from multigpu.base.refusal import refuse
from multigpu.cluster.lost import WorkerLostError, lost, silent
from multigpu.engines.jax.placement import all_variables, send_home, settle
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import finish_state


def synchronize_workers(model: keras.Model, plan: Plan) -> None:
    """Raise an error if workers differ, and give all of them the chief's values.

    Raises:
        ValueError: a worker has another model or other devices. All workers raise it.
    """
    shapes = [f"{tuple(v.shape)} {v.dtype}" for v in all_variables(model)]
    with named(plan.cluster):
        check_alike([keras.__version__, jax.__version__, *plan.devices, *shapes], "model, devices or versions", plan)
        follow_chief(model, plan)


def check_alike(told: list[Any], what: str, plan: Plan) -> None:
    """Refuse a worker that differs from the chief."""
    sums = np.ravel(process_allgather(np.uint32(zlib.crc32(repr(told).encode()))))
    for number in np.flatnonzero(sums != sums[0]):
        raise refuse(
            "the same program on all workers",
            f"{name_of(number, plan)} with another {what} than the chief",
            "On all workers, install the same versions, build the same model with the same number of devices, "
            "and make the same calls.",
        )


def any_of_all(here: bool) -> bool:
    """Return whether it is true on any worker."""
    return bool(process_allgather(np.int32(here)).any())


def name_of(number: int, plan: Plan) -> str:
    """Return the name of a worker, for messages."""
    return plan.cluster.name(number)  # type: ignore[union-attr]  # always given here


def follow_chief(model: keras.Model, plan: Plan) -> None:
    """Give the variables of a model and its optimizer the values of the chief."""
    variables = all_variables(model)
    send_home(variables, broadcast_one_to_all([np.asarray(variable.value) for variable in variables]))
    settle(variables, plan)
    finish_state(model)


@contextlib.contextmanager
def order_of_chief() -> Iterator[None]:
    """Shuffle with the chief's random state of NumPy. Afterwards, the other workers have their own state again."""
    before: Any = np.random.get_state()
    keys, position = broadcast_one_to_all(before[1:3])
    if jax.process_index() > 0:
        np.random.set_state((before[0], np.asarray(keys), int(position), 0, 0.0))
    try:
        yield
    finally:
        if jax.process_index() > 0:
            np.random.set_state(before)


@contextlib.contextmanager
def named(cluster: Any) -> Iterator[None]:
    """Convert an error that a lost worker caused into one that names the worker.

    Raises:
        WorkerLostError: another worker does not listen any more.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, WorkerLostError) or not (gone := silent(cluster)):
            raise
        raise lost(f"no answer from {gone}", cluster) from error
