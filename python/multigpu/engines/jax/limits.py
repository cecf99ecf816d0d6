"""Limit the threads and the memory with which a model from a file is built for the first time."""

import math
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from multigpu.base.replaced import replaced

OUT_OF_MEMORY = (MemoryError,)


def start_with_one_thread() -> None:
    """Start JAX's threads before memory is limited. Their number cannot be chosen."""
    keras.ops.zeros(())


def variables_of_at_most(num_elements: int) -> AbstractContextManager[None]:
    """Raise an error before variables are made that are larger in total."""
    left, make = num_elements, keras.Variable.__init__

    def checked(self: keras.Variable, initializer: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= math.prod(np.shape(initializer) if shape is None else shape)
        if left < 0:
            raise ValueError(f"it needs more than the {num_elements:,} numbers that the file has as weights.")
        make(self, initializer, shape, *args, **kwargs)

    return replaced(keras.Variable, "__init__", checked)
