"""Callbacks that write files. Only the chief of several workers may have them."""

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
