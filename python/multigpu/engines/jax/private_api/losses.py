"""Count each added loss once: Keras tells losses by their `id`, and by those of losses that are gone."""

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope

from multigpu.base.replaced import intercepted


def fresh_losses() -> Any:
    """In a `with` block, or in a function with this decorator, begin stateless calls without losses of earlier calls.

    A layer keeps the `id` of each loss that it adds until it is called again. Meanwhile Python may give that `id` to
    another layer's loss, which Keras then leaves out or counts twice: in about one of 50 calls of `evaluate()`.
    """
    return intercepted([(keras.Layer, "stateless_call", _stateless_call)], lambda: True)


def _stateless_call(of_keras: Callable[..., Any], layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
    if not in_stateless_scope():  # a call inside of another one would drop losses of that one
        layer._clear_losses()
    return of_keras(layer, *args, **kwargs)
