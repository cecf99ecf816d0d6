"""A few numbers merged over the devices of one worker: soon there, since few messages follow each other.

Recursive doubling: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication Operations in
MPICH", 2005, section 4.5. With 8 devices there are 3 rounds, where a ring passes numbers on 14 times.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf

from multigpu.engines.tensorflow.cluster.collective import collective_stack

Merge: TypeAlias = Callable[[tf.Tensor], tf.Tensor]  # of what several have, stacked along a new first axis: of all


def added(stacked: tf.Tensor) -> tf.Tensor:
    """The sum of what several have."""
    return tf.reduce_sum(stacked, axis=0)


def exchanged(
    x: tf.Tensor, number: tf.Tensor, devices: Sequence[str], instance: Callable[[], int], merge: Merge
) -> tf.Tensor:
    """Merge values of devices, to the last bit the same on each of them.

    In each round, sets of devices exchange what they have, so that each has that of a set, merged; those of the next
    round are of one device of each set. Sets have as many devices as a prime factor of their number says.

    Args:
        x: of a known shape, the same everywhere.
        number: (), which of the devices this is.
        devices: all of them.
        instance: gives the number of an exchange, which no other one has.
        merge: what is merged may be merged again.
    """
    stride = 1
    for width in _prime_factors(len(devices)):
        exchange = functools.partial(collective_stack, x, width, instance=instance())
        names = [f"{','.join(devices)}: {width} at {stride}, set {at}" for at in range(len(devices) // width)]
        at = number // (stride * width) * stride + number % stride
        x = merge(tf.switch_case(at, [functools.partial(exchange, group=name) for name in names]))
        stride *= width
    return x


def _prime_factors(number: int) -> Iterator[int]:
    """In ascending order; none of 1."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
