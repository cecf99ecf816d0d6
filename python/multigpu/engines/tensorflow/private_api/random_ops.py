"""The functions of TensorFlow that make ops which draw. All of `tf.random`, `tf.nn`, `keras.random` comes down to them.

They look each other up in modules without a public name; those of `tf.raw_ops` are others.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value_as_shape
from tensorflow.python.ops import gen_stateless_random_ops, gen_stateless_random_ops_v2

from multigpu.base.replaced import replaced

BY_COUNTER = (  # which take a key and the counter of their first number
    "stateless_random_uniform_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_normal_v2",
    "stateless_truncated_normal_v2",
)
OTHERS = ("stateless_random_gamma_v3",)
BY_SEED = (
    "stateless_multinomial",
    "stateless_random_binomial",
    "stateless_random_poisson",
    "stateless_parameterized_truncated_normal",
)


@contextlib.contextmanager
def draws_replaced(stand_in: Callable[[str, Callable[..., tf.Tensor]], Callable[..., tf.Tensor]]) -> Iterator[None]:
    """While it lasts, each function that draws from a seed is what `stand_in` makes of its name and itself."""
    places: list[tuple[Any, str]] = [(gen_stateless_random_ops_v2, name) for name in (*BY_COUNTER, *OTHERS)]
    places += [(gen_stateless_random_ops, name) for name in BY_SEED]
    with contextlib.ExitStack() as stack:
        for module, name in places:
            stack.enter_context(replaced(module, name, stand_in(name, getattr(module, name))))
        yield


def known_sizes(shape: tf.Tensor) -> tf.TensorShape:
    """Return the sizes of a shape that are known in a trace. `tf.get_static_value` knows all of them or none."""
    return constant_value_as_shape(shape)
