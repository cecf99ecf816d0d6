"""Optimizers with the arguments of Keras 2 (`lr`, `decay`, `epsilon=None`) and its default learning rates."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

BETAS = ("lr", "beta_1", "beta_2", "epsilon")
ORDERS = {  # of optimizers: the default learning rate, and the order of arguments
    keras.optimizers.SGD: (0.01, ("lr", "momentum", "decay", "nesterov")),
    keras.optimizers.RMSprop: (0.001, ("lr", "rho", "epsilon", "decay")),
    keras.optimizers.Adagrad: (0.01, ("lr", "epsilon", "decay")),
    keras.optimizers.Adadelta: (1.0, ("lr", "rho", "epsilon", "decay")),
    keras.optimizers.Adam: (0.001, (*BETAS, "decay", "amsgrad")),
    keras.optimizers.Adamax: (0.002, (*BETAS, "decay")),
    keras.optimizers.Nadam: (0.002, (*BETAS, "schedule_decay")),
}


def restore() -> None:
    """Make optimizers accept and show `lr`, and lower it by `decay`."""
    for optimizer, (rate, order) in ORDERS.items():
        optimizer.__init__ = _with_old_arguments(optimizer.__init__, rate, order)
    keras.optimizers.Optimizer.lr = property(
        lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate)
    )


def _with_old_arguments(init: Callable, rate: float, order: Sequence[str]) -> Callable:
    @functools.wraps(init)
    def wrapper(self: keras.Optimizer, *args: Any, **kwargs: Any) -> None:
        kwargs.update(zip(order, args, strict=False))
        decay = kwargs.pop("decay", None) or 0.0
        kwargs.pop("schedule_decay", None)  # of Nadam: fixed in Keras 3, at the value that was the default
        if kwargs.get("epsilon", 0) is None:
            del kwargs["epsilon"]
        given = kwargs.pop("lr", kwargs.pop("learning_rate", rate))
        init(self, float(given) if isinstance(given, int) else given, **kwargs)
        if decay:
            self.decay = float(decay)
            self.update_step = _decayed(self, self.update_step, self.decay)

    return wrapper


def another(optimizer: keras.Optimizer) -> keras.Optimizer:
    """Return another optimizer with the same arguments, and without slots."""
    decay = {"decay": optimizer.decay} if "decay" in vars(optimizer) else {}
    return type(optimizer).from_config({**optimizer.get_config(), **decay})


def _decayed(optimizer: keras.Optimizer, update_step: Callable, decay: float) -> Callable:
    """Return an optimizer's update with rate ÷ (1 + decay · steps), as in Keras 2. Callbacks may still set the rate."""

    def update(gradient: Any, variable: Any, learning_rate: Any) -> None:
        steps = keras.ops.cast(optimizer.iterations, learning_rate.dtype)
        update_step(gradient, variable, learning_rate / (1.0 + decay * steps))

    return update
