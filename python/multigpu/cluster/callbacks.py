"""Callbacks of several workers. Only the chief may write files, and all workers stop together."""

from collections.abc import Callable, Iterable
from typing import Any

import keras

WRITERS = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.RemoteMonitor,
)

EACH_STEP = (keras.callbacks.LambdaCallback, keras.callbacks.TerminateOnNaN)  # Keras' own that may stop within an epoch


def listed(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a user gave, alone or in a list, which may be one of Keras'."""
    given = callbacks.callbacks if isinstance(callbacks, keras.callbacks.CallbackList) else callbacks
    return [each for each in keras.tree.flatten(given) if each is not None]


def allowed(callbacks: Iterable[keras.callbacks.Callback], is_chief: bool) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a worker may have."""
    return [callback for callback in callbacks if is_chief or not isinstance(callback, WRITERS)]


class StopTogether(keras.callbacks.Callback):
    """If a callback of one worker stops the training, stop it on all workers.

    Args:
        others: the callbacks of this worker.
        any_of_all: returns whether something is true on any worker.
    """

    def __init__(self, others: Iterable[keras.callbacks.Callback], any_of_all: Callable[[bool], bool]) -> None:
        super().__init__()
        self._any_of_all = any_of_all
        own = any(isinstance(each, EACH_STEP) or not type(each).__module__.startswith("keras.") for each in others)
        self._each_step = any_of_all(own)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Exchange the decision with the other workers."""
        self.model.stop_training = self._any_of_all(self.model.stop_training)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Exchange the decision, if a worker has a callback that may stop within an epoch."""
        if self._each_step:
            self.on_epoch_end(batch)
