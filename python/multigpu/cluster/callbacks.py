"""Callbacks that write files: of several workers, the chief alone has them."""

from collections.abc import Iterable

import keras

WRITERS = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.RemoteMonitor,
)


def allowed(callbacks: Iterable[keras.callbacks.Callback], is_chief: bool) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a worker may have."""
    return [callback for callback in callbacks if is_chief or not isinstance(callback, WRITERS)]
