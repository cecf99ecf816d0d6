"""Add old names to the logs of callbacks and the history: `acc` beside `accuracy`, as scripts for Keras 2 expect."""

from typing import Any

import keras

OLD = {"accuracy": "acc", "mse": "mean_squared_error", "mae": "mean_absolute_error", "learning_rate": "lr"}
TODAY = {old: new for new, old in OLD.items()}
KINDS = ("binary", "categorical", "top_k_categorical")  # of accuracy, which were never shortened


def restore() -> None:
    """Make all callbacks except the progress bar see both names."""
    of_all, of_bar = keras.callbacks.CallbackList.on_epoch_end, keras.callbacks.ProgbarLogger.on_epoch_end

    def on_epoch_end(self: Any, epoch: int, logs: dict[str, Any] | None = None) -> None:
        of_all(self, epoch, {**(logs or {}), **with_old_names(logs or {})})

    def on_bar_epoch_end(self: Any, epoch: int, logs: dict[str, Any] | None = None) -> None:
        of_bar(self, epoch, without_old_names(logs or {}))

    keras.callbacks.CallbackList.on_epoch_end = on_epoch_end
    keras.callbacks.ProgbarLogger.on_epoch_end = on_bar_epoch_end


def with_old_names(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs that also have the old names: `acc` for `accuracy`, `mean_squared_error` for `mse`, and so on."""
    return {_renamed(name, OLD | TODAY): value for name, value in logs.items()}


def without_old_names(logs: dict[str, Any]) -> dict[str, Any]:
    """Return logs without the names that are there a second time, under today's name."""
    return {name: value for name, value in logs.items() if _renamed(name, TODAY) not in logs.keys() - {name}}


def _renamed(name: str, names: dict[str, str]) -> str:
    """Return the other name of a metric: `"val_accuracy"` → `"val_acc"`, `"mse"` → `"mean_squared_error"`."""
    if name.removeprefix("val_").removesuffix("_accuracy").removeprefix("sparse_") in KINDS:
        return name
    for old, new in names.items():
        if name == old or name.endswith(f"_{old}"):
            return name.removesuffix(old) + new
    return name
