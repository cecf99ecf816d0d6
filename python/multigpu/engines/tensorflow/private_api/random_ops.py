"""Replace the functions with which TensorFlow makes random ops: `tf.random`, `tf.nn` and `keras.random` call them.

They look each other up in modules without a public name. The functions in `tf.raw_ops` are different ones.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value_as_shape
from tensorflow.python.ops import gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2

from multigpu.base.replaced import intercepted
from multigpu.engines.tensorflow.private_api.tensorflow_names import BY_COUNTER, BY_SEED, OTHERS

KEEPING_STATE: dict[str, Callable[..., tf.Tensor]] = {  # how to draw the same from a seed
    "random_uniform": lambda seed, shape, dtype: tf.random.stateless_uniform(shape, seed, dtype=dtype),
    "random_uniform_int": lambda seed, shape, minval, maxval: tf.random.stateless_uniform(
        shape, seed, minval, maxval, dtype=tf.convert_to_tensor(minval).dtype
    ),
    "random_standard_normal": lambda seed, shape, dtype: tf.random.stateless_normal(shape, seed, dtype=dtype),
    "truncated_normal": lambda seed, shape, dtype: tf.random.stateless_truncated_normal(shape, seed, dtype=dtype),
}


def draws_replaced(
    draw: Callable[..., tf.Tensor], applies: Callable[[], bool]
) -> contextlib.AbstractContextManager[None]:
    """Replace the functions that draw from a seed, in a `with` block.

    Functions whose state TensorFlow keeps only give a seed, from which the numbers are then drawn.

    Args:
        draw: receives a function's name, the function and its arguments.
        applies: returns whether the running code is affected, and not code of another thread.
    """
    drawing = [(gen_stateless_random_ops_v2, name) for name in (*BY_COUNTER, *OTHERS)]
    drawing += [(gen_stateless_random_ops, name) for name in BY_SEED]
    seams = [(module, name, functools.partial(draw, name)) for module, name in drawing]
    whole_numbers = gen_random_ops.random_uniform_int
    for name, again in KEEPING_STATE.items():
        seams.append((gen_random_ops, name, functools.partial(_from_a_seed, whole_numbers, again)))
    return intercepted(seams, applies)


def _from_a_seed(
    whole_numbers: Callable, draw: Callable, original: Callable, /, *args: Any, seed: int = 0, seed2: int = 0, **_: Any
) -> tf.Tensor:
    largest = tf.constant(tf.int32.max, tf.int64)  # 64-bit integers, which are computed on the host
    drawn = whole_numbers([2], tf.zeros([], tf.int64), largest, seed=seed, seed2=seed2)
    return draw(tf.cast(drawn, tf.int32), *args)


def known_sizes(shape: tf.Tensor) -> tf.TensorShape:
    """Return the sizes of a shape that are known in a trace. `tf.get_static_value` knows all of them or none."""
    return constant_value_as_shape(shape)
