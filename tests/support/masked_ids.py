"""Rows of ids in which 0 means that there is none: anywhere, or at the end of a row alone.

On a GPU, Keras gives masked LSTM and GRU layers to cuDNN, which takes zeros at the end of a row alone, and no row of
zeros. For zeros anywhere, such a layer needs `use_cudnn=False`. So both kinds of rows can run on GPUs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from equality import random_ids


def right_padded_ids(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    """Whole numbers from 1 to `below - 1`, at least one in each row, and zeros after them."""
    rows, steps = shape
    lengths = random_ids(rows, 1, below=steps, seed=seed + 1) + 1
    return np.where(np.arange(steps) < lengths, random_ids(*shape, below=below - 1, seed=seed) + 1, 0)


class Padding(NamedTuple):
    """Where zeros are in rows of ids, and what a recurrent layer is told that reads them."""

    ids: Callable[..., np.ndarray]
    cudnn: dict[str, Any]


PADDINGS = {"zeros anywhere": Padding(random_ids, {"use_cudnn": False}), "right-padded": Padding(right_padded_ids, {})}
