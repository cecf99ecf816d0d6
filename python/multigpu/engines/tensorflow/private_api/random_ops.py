"""Replace the functions with which TensorFlow makes random ops: `tf.random`, `tf.nn` and `keras.random` call them.

They look each other up in modules without a public name. The functions in `tf.raw_ops` are different ones.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value_as_shape
from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2

from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.private_api.tensorflow_names import BY_COUNTER, BY_SEED, OTHERS

KEEPING_STATE = {  # how to draw the same from a seed
    "random_uniform": lambda seed, shape, dtype: tf.random.stateless_uniform(shape, seed, dtype=dtype),
    "random_uniform_int": lambda seed, shape, minval, maxval: tf.random.stateless_uniform(
        shape, seed, minval, maxval, dtype=tf.convert_to_tensor(minval).dtype
    ),
    "random_standard_normal": lambda seed, shape, dtype: tf.random.stateless_normal(shape, seed, dtype=dtype),
    "truncated_normal": lambda seed, shape, dtype: tf.random.stateless_truncated_normal(shape, seed, dtype=dtype),
}

StandIn = Callable[[str, Callable[..., tf.Tensor]], Callable[..., tf.Tensor]]


def draws_replaced(stand_in: StandIn, applies: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
    """Replace each function that draws from a seed by `stand_in` of its name and itself, in a `with` block.

    Functions whose state TensorFlow keeps only give a seed, from which the numbers are then drawn.

    Args:
        stand_in: receives a name and a function.
        applies: returns whether the running code is affected, and not code of another thread.
    """
    places: list[tuple[Any, str]] = [(gen_stateless_random_ops_v2, name) for name in (*BY_COUNTER, *OTHERS)]
    places += [(gen_stateless_random_ops, name) for name in BY_SEED]
    seeded = functools.partial(_from_a_seed, gen_random_ops.random_uniform_int, applies)
    instead = [(module, name, stand_in(name, getattr(module, name))) for module, name in places]
    for name, draw in KEEPING_STATE.items():
        instead.append((gen_random_ops, name, functools.partial(seeded, getattr(gen_random_ops, name), draw)))
    return entered(itertools.starmap(replaced, instead))


def _from_a_seed(
    whole_numbers: Callable[..., tf.Tensor],
    applies: Callable[[], bool],
    original: Callable[..., tf.Tensor],
    draw: Callable[..., tf.Tensor],
    /,
    *args: Any,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    if not applies():
        return original(*args, seed=seed, seed2=seed2, name=name)
    largest = tf.constant(tf.int32.max, tf.int64)  # 64-bit integers, which are computed on the host
    drawn = whole_numbers([2], tf.zeros([], tf.int64), largest, seed=seed, seed2=seed2)
    return draw(tf.cast(drawn, tf.int32), *args)


def known_sizes(shape: tf.Tensor) -> tf.TensorShape:
    """Return the sizes of a shape that are known in a trace. `tf.get_static_value` knows all of them or none."""
    return constant_value_as_shape(shape)
