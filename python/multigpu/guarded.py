"""Verbs of the parallel model, guarded: not inside of strategies, explained where memory runs out, no tape left."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from multigpu.exhaustion import OutOfMemory, explained
from multigpu.strategies import USED, check_no_strategy
from multigpu.tapes import tapes_released

BATCH_SIZE = 32  # Keras' own, where none is given


def guarded(verb: Callable) -> Callable:
    """A verb of a parallel model, such as `fit`, whose errors say what to do."""

    @functools.wraps(verb)
    def guarded_verb(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_no_strategy(USED)
        try:
            with tapes_released(), self._spread.layer_named((tf.errors.InvalidArgumentError,)):  # of a traced step
                return verb(self, *args, **kwargs)
        except OutOfMemory:
            raise  # by a verb inside: `fit` evaluates
        except tf.errors.ResourceExhaustedError as error:
            rows = _rows(inspect.signature(verb), (self, *args), kwargs)
            raise explained(error, self.plan, rows) from error

    return guarded_verb


def _rows(signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> int | None:
    """Rows of a batch, as far as the arguments of a verb tell."""
    arguments = signature.bind(*args, **kwargs).arguments
    data = arguments.get("x")
    if isinstance(data, tf.data.Dataset):
        return _count(next(iter(data.take(1)), None))
    if isinstance(data, keras.utils.PyDataset):
        return _count(data[0])
    if hasattr(data, "__next__"):
        return None
    at_most = arguments.get("batch_size") or BATCH_SIZE if "batch_size" in signature.parameters else None
    rows = _count(data)
    return rows if at_most is None or rows is None else min(rows, at_most)


def _count(batch: Any) -> int | None:
    arrays = [each for each in keras.tree.flatten(batch) if hasattr(each, "shape")]
    return int(arrays[0].shape[0]) if arrays else None
