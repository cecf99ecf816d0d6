"""Compute the memory of an optimizer for each weight, without making it, from tiny substitutes."""

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.weights.place_locate import slots_of, stored_dtype

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)  # lengths of a substitute's axes, by which its slots are recognized


def slot_bytes(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> dict[int, int]:
    """Return the bytes of the optimizer's slots for each weight, by the weight's id.

    It builds an optimizer of the same kind for substitutes of the weights with short axes. Its slots have the lengths
    of the weights, axis by axis.
    """
    same = type(optimizer).from_config(optimizer.get_config())
    with tf.device("CPU:0"):
        stand_ins = [_stand_in(number, weight) for number, weight in enumerate(weights)]
        same.build(stand_ins)
    weight_of = {id(stand_in): weight for stand_in, weight in zip(stand_ins, weights, strict=True)}
    sizes = dict.fromkeys(map(id, weights), 0)
    for slot, stand_in in slots_of(same, stand_ins):
        weight = weight_of[id(stand_in)]
        sizes[id(weight)] += _num_elements(slot, weight) * stored_dtype(slot).size
    return sizes


def _stand_in(number: int, weight: keras.Variable) -> keras.Variable:
    shape = PRIMES[: len(weight.shape)]
    return keras.Variable(keras.ops.zeros(shape), dtype=stored_dtype(weight).name, name=f"weight{number}_{weight.name}")


def _num_elements(slot: keras.Variable, weight: keras.Variable) -> int:
    """Return how many numbers a weight's slot will have, from the slot of its substitute."""
    length = dict(zip(PRIMES, weight.shape, strict=False))
    return math.prod(length.get(n, n) for n in slot.shape)
