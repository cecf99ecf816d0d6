"""Parts that a template asks to compute twice (`keras.remat`) are computed once in a replica.

To a replica a weight is a tensor that was sent, which `tf.recompute_grad` takes for a constant: such a weight would get
no gradient. Computed once, every number is that of one device, at the price of the memory that was to be saved.
"""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from multigpu.replaced import replaced

_one_at_a_time = threading.RLock()  # two traces must not mistake each other's stand-in for the original


@contextlib.contextmanager
def computed_once() -> Iterator[None]:
    """Recomputing is computing while it lasts. Keras has no other seam between its layers and this function."""
    with _one_at_a_time, replaced(tf, "recompute_grad", lambda function: function):
        yield
