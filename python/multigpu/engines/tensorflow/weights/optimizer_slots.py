"""Place the optimizer's slots on the devices of their weights."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.weights.place_locate import locate, place, stored_dtype


def build_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Build an optimizer that is not built yet, with its slots on the devices of the weights.

    Keras would do this inside the trace of the first step, where TensorFlow puts all slots on one device. So during a
    trace, this runs outside of it.
    """
    if weights and not optimizer.built:
        outside_of_functions(_build, optimizer, weights)


def outside_of_functions(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function where no trace forbids to make variables: during one, in a separate thread."""
    if tf.executing_eagerly():
        return work(*arguments)
    with ThreadPoolExecutor(1) as outside:  # there, Keras has its initial settings
        outside.submit(keras.config.set_dtype_policy, keras.config.dtype_policy()).result()
        return outside.submit(work, *arguments).result()


def _build(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    with keras.name_scope(optimizer.name, caller=optimizer):  # as in Keras' first step
        optimizer.build(weights)
    place_slots(optimizer, weights)


def place_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Place the optimizer's variables of each weight on the weight's device, and all others on the CPU."""
    homes = {id(slot): locate(weight) for slot, weight in slots_of(optimizer, weights)}
    place((variable, homes.get(id(variable), "CPU:0")) for variable in optimizer.variables)


def slots_of(
    optimizer: keras.Optimizer, weights: Sequence[keras.Variable]
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Return the optimizer's variables that belong to one weight each, with their weights, found by their names.

    Integers are left out, because GPUs do not store them. Adafactor's rows and columns have only the weight's short
    name, and come right before a slot of that weight.
    """
    named = sorted(
        ((weight.path.replace("/", "_") + "_", weight) for weight in weights), key=lambda pair: -len(pair[0])
    )
    pairs: list[tuple[keras.Variable, keras.Variable]] = []
    for slot in reversed([slot for slot in optimizer.variables if stored_dtype(slot).is_floating]):
        weight = next((weight for name, weight in named if slot.name.startswith(name)), None)
        if weight is None and pairs and slot.shape and slot.name == pairs[-1][1].name:
            weight = pairs[-1][1]
        if weight is not None:
            pairs.append((slot, weight))
    return pairs[::-1]
