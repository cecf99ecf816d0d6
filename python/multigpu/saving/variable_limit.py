"""Limit the numbers that a model from a file may have as variables."""

import math
import threading
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from multigpu.base.replaced import replaced


def variables_of_at_most(num_elements: int) -> AbstractContextManager[None]:
    """Raise an error before this thread makes variables that are larger in total."""
    left, make, thread = num_elements, keras.Variable.__init__, threading.get_ident()

    def checked(self: keras.Variable, initializer: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        if threading.get_ident() == thread:
            left -= math.prod(np.shape(initializer) if shape is None else shape)
        if left < 0:
            raise ValueError(f"it needs more than the {num_elements:,} numbers that the file has as weights.")
        make(self, initializer, shape, *args, **kwargs)

    return replaced(keras.Variable, "__init__", checked)
