"""Get batches from a function that must be called on the main thread, such as one written in R.

An engine may request batches on its own threads. If the function were called there, R would wait for the engine and the
engine for R. So a callback calls the function on the main thread, just before each step, and the engine finds the batch
ready.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from multigpu.base.arrays import kept_type, row_weights
from multigpu.base.refusal import refuse
from multigpu.engines import batches_without_lookahead

PHASES = {"fit": ("train", "steps_per_epoch"), "evaluate": ("test", "steps"), "predict": ("predict", "steps")}
PEEKED = 2  # number of batches that determine the shapes, as Keras does for generators


class MainThreadGenerator(keras.callbacks.Callback):
    """Calls a source before each step and hands its batches to a dataset.

    Args:
        source: a function without arguments that returns the next batch as `(x, y)` or `(x, y, sample_weight)`, or
            without targets as `(x,)`. It returns None when there are no more batches, or none in this epoch.
        phase: `"train"`, `"test"` or `"predict"`: the kind of steps that use the batches.
        steps: the number of batches of one pass. None for as many as there are.
        class_weight: the weight of each class by its number, 1 for others.
    """

    def __init__(
        self, source: Callable[[], Any], phase: str, steps: int | None, class_weight: dict[int, float] | None = None
    ) -> None:
        super().__init__()
        self._source, self._class_weight = source, class_weight
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.get_ident()
        self._owed = 0  # batches that were taken early, to learn their shapes
        self._spec = self._peek(min(steps or PEEKED, PEEKED))
        setattr(self, f"on_{phase}_batch_begin", self._feed)
        self._has_ended, self._num_steps = False, 0  # of the epoch
        if phase == "train":
            self.on_train_batch_end, self.on_epoch_end = self._count, self._stop
        if phase == "test":
            self.on_test_begin = self._check_not_ended

    def dataset(self) -> Any:
        """Return the batches as a dataset, one per step. It takes none early: no thread waits for a batch."""
        dataset = batches_without_lookahead(self._batches, self._spec)
        self._goes_on = not isinstance(dataset, Iterator)  # Keras would repeat what it took early of one that has ended
        return dataset

    def _feed(self, batch: int, logs: Any = None) -> None:
        for _ in range(self.model.steps_per_execution):
            if self._owed:
                self._owed -= 1
            elif self._put() is None:
                break

    def _count(self, batch: int, logs: Any = None) -> None:
        self._num_steps += 1

    def _stop(self, epoch: int, logs: dict[str, float]) -> None:
        """Stop when there are no more batches. An epoch without any has no values; Keras would say 0."""
        if not self._num_steps:
            logs.update({name: float("nan") for name in logs if not name.startswith("val_")})
        if self._has_ended and epoch + 1 < self.params["epochs"]:  # some begin again for each epoch
            self.model.stop_training |= not self._goes_on or self._put() is None
            self._owed += 1
        self._has_ended, self._num_steps = False, 0

    def _check_not_ended(self, logs: Any = None) -> None:
        if self._has_ended and not self._goes_on:
            raise refuse(
                "batches for validation after each epoch",
                "a generator that has no more",
                "Set `validation_steps`, and let it return that many for each epoch.",
            )

    def _batches(self) -> Iterator[Any]:
        while (batch := self._taken()) is not None:
            yield batch
        self._has_ended = True

    def _taken(self) -> Any:
        """Return the next batch. Keras on JAX asks for two before the first step, on this thread, also for one step."""
        if self._ready.empty() and threading.get_ident() == self._thread:
            self._owed += 1
            self._put()
        return self._ready.get_nowait()

    def _put(self) -> Any:
        """Call the source, and return its batch, which is ready then."""
        batch = self._next()
        self._ready.put(batch)
        return batch

    def _next(self) -> Any:
        batch = self._source()
        if batch is None:
            return None
        arrays = _as_arrays(batch)
        return _weighted(arrays, self._class_weight) if self._class_weight else arrays

    def _peek(self, steps: int) -> Any:
        batches = [self._put() for _ in range(steps)]
        self._owed = len(batches)
        given = [batch for batch in batches if batch is not None]
        if not given:
            raise refuse(
                "a generator of batches",
                "one that returned no batch",
                "It must return a list of x and y for each step of the training.",
            )
        return keras.tree.map_structure(_spec, given[0], given[-1])


def call(verb: str, model: keras.Model, x: Any = None, validation_data: Any = None, **arguments: Any) -> Any:
    """Call `fit`, `evaluate` or `predict`. `x` and `validation_data` may be functions that return the next batch."""
    phase, steps = PHASES[verb]
    feeds = []
    if callable(x):
        # Keras would weight a dataset on threads of its own, ahead of the steps
        weights = arguments.pop("class_weight", None)
        feeds.append(MainThreadGenerator(x, phase, arguments.get(steps), weights))
        x = feeds[-1].dataset()
        arguments.update({"shuffle": False} if verb == "fit" else {})
    if callable(validation_data):
        feeds.append(MainThreadGenerator(validation_data, "test", arguments.get("validation_steps")))
        validation_data = feeds[-1].dataset()
    arguments.update({} if validation_data is None else {"validation_data": validation_data})
    callbacks = [*feeds, *(arguments.pop("callbacks", None) or [])]
    return getattr(model, verb)(x, callbacks=callbacks, **arguments)


def _as_arrays(batch: Any) -> Any:
    """Return a batch as a tuple of C-ordered arrays, floats in Keras' float type."""
    if not isinstance(batch, list | tuple) or not 1 <= len(batch) <= 3:
        raise refuse(
            "a generator to return a list of x, y and perhaps weights",
            f"{type(batch).__name__}{f' of length {len(batch)}' if isinstance(batch, list | tuple) else ''}",
            "Return `list(x, y)` in R, `(x, y)` in Python.",
        )
    given = batch[:-1] if len(batch) == 3 and batch[-1] is None else batch  # R's generators may return no weights
    return keras.tree.lists_to_tuples(keras.tree.map_structure(_as_array, tuple(given)))


def _weighted(batch: tuple[Any, ...], class_weight: dict[int, float]) -> tuple[Any, ...]:
    """Return a batch with the weights of its classes, as Keras weights the rows of arrays."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if sample_weight is not None or not isinstance(y, np.ndarray):
        raise refuse(
            "batches of x and the classes of one output, for `class_weight`",
            "several outputs, or none" if sample_weight is None else f"a list of length {len(batch)}",
            "Return the weights of rows with each batch, in place of `class_weight`.",
        )
    return x, y, row_weights(y, class_weight)


def _as_array(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return np.array(array, kept_type(array), order="C")  # always a copy


def _spec(one: np.ndarray, other: np.ndarray) -> keras.KerasTensor:
    """Return the type of two arrays and their common shape. A batch may have any number of rows."""
    shape = [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]
    return keras.KerasTensor([None, *shape[1:]], "string" if one.dtype.kind in "OUS" else str(one.dtype))
