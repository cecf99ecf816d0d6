"""A sum of a few numbers over the devices of one worker: soon there, since few messages follow each other.

Recursive doubling: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication Operations in
MPICH", 2005, section 4.5. With 8 devices there are 3 rounds, where a ring passes numbers on 14 times.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from multigpu.cluster.collective import group_number


def exchanged_sum(x: tf.Tensor, number: tf.Tensor, devices: Sequence[str], instance: Callable[[], int]) -> tf.Tensor:
    """The sum of `x` over devices, to the last bit the same on each of them.

    In each round, sets of devices exchange what they have, so that each has the sum of a set; those of the next round
    are of one device of each set. Sets have as many devices as a prime factor of their number says.

    Args:
        x: of a known shape, the same everywhere.
        number: (), which of the devices this is.
        devices: all of them.
        instance: gives the number of an exchange, which no other one has.
    """
    stride = 1
    for width in _prime_factors(len(devices)):
        exchange = functools.partial(_exchange, x, width, instance())
        names = [f"{','.join(devices)}: {width} at {stride}, set {at}" for at in range(len(devices) // width)]
        at = number // (stride * width) * stride + number % stride
        x = tf.reduce_sum(tf.switch_case(at, [functools.partial(exchange, name) for name in names]), axis=0)
        stride *= width
    return x


def _exchange(x: tf.Tensor, width: int, instance: int, group: str) -> tf.Tensor:
    """What the devices of a set have, in their order, on each of them. Without a time limit (`collective.py`)."""
    return tf.raw_ops.CollectiveGather(
        input=x[tf.newaxis],
        group_size=width,
        group_key=group_number(group),
        instance_key=instance,
        shape=[width, *x.shape],
        communication_hint="ring",  # works between any devices; NCCL does not between parts of one GPU
    )


def _prime_factors(number: int) -> Iterator[int]:
    """In ascending order; none of 1."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
