"""Arguments of Keras 2 that constructors of callbacks no longer accept, and assignments that it allowed."""

import inspect
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.arguments import by_name
from multigpu.keras2.modules import put_name

FILE_ENDINGS = {True: ".weights.h5", False: ".h5"}  # by `save_weights_only`; Keras 3 requires one of them


def restore() -> None:
    """Give callbacks back the arguments of Keras 2."""
    for callback in (ModelCheckpoint, EarlyStopping, ReduceLROnPlateau, LearningRateScheduler, TensorBoard):
        put_name("callbacks", callback.__name__, callback)
    stock = keras.callbacks.Callback.model
    keras.callbacks.Callback.model = stock.setter(lambda self, model: setattr(self, "_model", model))


def _direction(monitor: str, mode: str) -> str:
    """Return the meaning of "auto" in Keras 2: higher is better for an accuracy, lower for all other metrics."""
    if mode in ("min", "max"):
        return mode
    return "max" if "acc" in monitor or monitor.startswith("fmeasure") else "min"


def _directed(constructor: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a callback by name, with that direction."""
    arguments = {"monitor": "val_loss", "mode": "auto", **by_name(constructor, args, kwargs)}
    return {**arguments, "mode": _direction(arguments["monitor"], arguments["mode"])}


class _LogsOldName(keras.callbacks.Callback):
    """Also log the rate as `lr`."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the rate under both names."""
        super().on_epoch_end(epoch, logs)
        if logs is not None and "learning_rate" in logs:
            logs["lr"] = logs["learning_rate"]


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keras' own callback, which also saves under any file name, and every `period` epochs."""

    def __init__(
        self,
        filepath: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        period: Any = 1,
        **kwargs: Any,
    ) -> None:
        if period == "epoch":  # the seventh argument of Keras 3
            period = 1
        ending = FILE_ENDINGS[bool(save_weights_only)]
        mode = _direction(monitor, mode)
        super().__init__(f"any{ending}", monitor, verbose, save_best_only, bool(save_weights_only), mode, **kwargs)
        self.filepath = str(filepath)
        self.period = period
        self._epochs_since_last_save = 0

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save, if the period is over."""
        self._epochs_since_last_save += 1
        if self._epochs_since_last_save >= self.period:
            self._epochs_since_last_save = 0
            super().on_epoch_end(epoch, logs)


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Keras' own callback, which also derives from a metric's name whether higher is better."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(**_directed(super().__init__, args, kwargs))


class ReduceLROnPlateau(_LogsOldName, keras.callbacks.ReduceLROnPlateau):
    """Keras' own callback, which also accepts `epsilon` for `min_delta`."""

    def __init__(self, *args: Any, epsilon: float | None = None, **kwargs: Any) -> None:
        old = {} if epsilon is None else {"min_delta": epsilon}
        super().__init__(**{**_directed(super().__init__, args, kwargs), **old})


class LearningRateScheduler(_LogsOldName, keras.callbacks.LearningRateScheduler):
    """Keras' own callback, which also logs the rate as `lr`, and accepts schedules that return any number."""

    def __init__(self, schedule: Callable[..., Any], verbose: int = 0) -> None:
        super().__init__(_with_rate(schedule), verbose)


def _with_rate(schedule: Callable[..., Any]) -> Callable[[int, float], float]:
    """Return a schedule that receives the epoch, and in later versions the rate, and returns a float."""
    try:
        inspect.signature(schedule).bind(0, 0.0)
    except TypeError:
        return lambda epoch, _: float(schedule(epoch))
    return lambda epoch, rate: float(schedule(epoch, rate))


class TensorBoard(keras.callbacks.TensorBoard):
    """Keras' own callback, which ignores the arguments for plots that no longer exist."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in ("batch_size", "write_grads", "embeddings_layer_names", "embeddings_data"):
            kwargs.pop(name, None)
        super().__init__(*args[:3], **kwargs)
