"""Leave batches on the host until a step sends each row to its device."""

import contextlib
from contextvars import ContextVar
from typing import Any

from keras.src.backend.jax import trainer

from multigpu.base.replaced import set_to

_of_keras = trainer._distribute_data
_stays: ContextVar[bool] = ContextVar("whether batches stay on the host", default=False)


def batches_on_host() -> contextlib.AbstractContextManager[None]:
    """Return a scope in which Keras' loops leave batches as NumPy arrays.

    Otherwise they put each whole batch on JAX's default device, one step ahead, and no setting prevents that. From
    there it would be copied once more, while the loop waits: on an H100, steps took up to five times as long.
    """
    return set_to(_stays, True)


def _distribute_data(data: Any, layouts: Any = None) -> Any:
    return data if _stays.get() else _of_keras(data, layouts)


trainer._distribute_data = _distribute_data  # for all models: outside of the scope it is Keras' own
