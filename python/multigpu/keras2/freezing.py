"""Fix the trainable weights when a model is compiled, as in Keras 2: the two models of a GAN rely on it."""

from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.replaced import wrapped
from multigpu.model.parallel_model import ParallelModel
from multigpu.private_api.layers import sublayers

SETTLED = "_trainable_when_compiled"


def restore() -> None:
    """Make a compiled model go on training layers that are frozen after `compile()`."""
    for model in (keras.Model, ParallelModel):
        for verb in ("fit", "train_on_batch"):
            setattr(model, verb, wrapped(getattr(model, verb), _settled))


class Flags:
    """The `trainable` flags of a model's layers. An object of its own, because lists in a model are saved with it."""

    def __init__(self, model: keras.Model) -> None:
        self._flags = [(layer, layer.trainable) for layer in [model, *sublayers(model)]]

    def differ(self) -> bool:
        """Return whether any of them has changed."""
        return any(layer.trainable != trainable for layer, trainable in self._flags)

    def set(self) -> None:
        """Restore the flags, outer layers first, because setting an outer layer also sets the layers inside."""
        for layer, trainable in self._flags:
            layer.trainable = trainable


def settle(model: keras.Model) -> None:
    """Note which layers are trained, when a model was compiled."""
    model.__dict__[SETTLED] = Flags(model)


def _settled(verb: Callable, self: keras.Model, /, *args: Any, **kwargs: Any) -> Any:
    settled = self.__dict__.get(SETTLED)
    if settled is None or not settled.differ():
        return verb(self, *args, **kwargs)
    now = Flags(self)
    settled.set()
    try:
        return verb(self, *args, **kwargs)
    finally:
        now.set()
