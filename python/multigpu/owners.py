"""Every weight has one owner: the device where it is stored and updated, and where its optimizer slots are."""

import gc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import tensorflow as tf

from multigpu.parcels import PARCEL_BYTES
from multigpu.place_locate import locate, num_bytes, place, stored_dtype
from multigpu.plan import Plan


def settle(model: keras.Model, plan: Plan) -> None:
    """Moves each variable of a model, in place, to the owner that the plan means it to have."""
    owners = owners_of(model, plan)
    move([(variable, owners[id(variable)]) for variable in model.variables])


def owners_of(model: keras.Model, plan: Plan) -> dict[int, str]:
    """The device that is to own each variable of a model, by the variable's id.

    With `cpu_relocation` that is the CPU for all. Otherwise weights are spread over the devices, balanced by bytes, and
    then floating-point state, such as moving means; counters and seeds, which are tiny and read by the CPU, stay there.
    """
    owners = dict.fromkeys(map(id, model.variables), "CPU:0")
    if not plan.cpu_relocation:
        loads = dict.fromkeys(plan.devices, 0)
        for group in (model.trainable_variables, model.non_trainable_variables):
            blocks = _blocks([variable for variable in group if stored_dtype(variable).is_floating])
            balanced = balance([sum(map(num_bytes, block)) for block in blocks], loads)
            owners.update((id(v), owner) for block, owner in zip(blocks, balanced, strict=True) for v in block)
    return owners


def _blocks(variables: Sequence[keras.Variable]) -> list[list[keras.Variable]]:
    """What gets an owner together: each weight by itself, and state that fits into one parcel, which travels in one."""
    small = sum(map(num_bytes, variables)) < PARCEL_BYTES
    is_state = not any(variable.trainable for variable in variables)
    return [list(variables)] if variables and is_state and small else [[variable] for variable in variables]


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Places variables, takes the slots of their optimizers along, and makes models trace their functions anew."""
    moved = [variable for variable, device in destinations if place([variable], device)]
    if not moved:
        return
    for model in models_with(moved):
        model.train_function = model.test_function = model.predict_function = None
        if getattr(model, "optimizer", None) is not None:
            place_slots(model.optimizer, model.trainable_variables)


def build_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Builds an optimizer that is not built yet, with its slots beside the weights.

    Keras would do so inside the trace of the first step, where TensorFlow puts all slots on one device. While one is
    being traced, it is done outside of it.
    """
    if optimizer.built or not weights:
        return
    if tf.executing_eagerly():
        _build(optimizer, weights)
        return
    outside_of_functions(_build, optimizer, weights)


def outside_of_functions(work: Callable[..., Any], *arguments: Any) -> None:
    """Does something in a thread of its own, in which no function is being traced that forbids to make variables."""
    with ThreadPoolExecutor(1) as outside:  # where Keras' settings are those at its start
        outside.submit(keras.config.set_dtype_policy, keras.config.dtype_policy()).result()
        outside.submit(work, *arguments).result()


def _build(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    with keras.name_scope(optimizer.name, caller=optimizer):  # as in its first step
        optimizer.build(weights)
    place_slots(optimizer, weights)


def place_slots(optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Places what an optimizer keeps for each weight beside that weight."""
    for slot, weight in slots_of(optimizer, weights):
        place([slot], locate(weight))


def balance(sizes: Sequence[int], loads: dict[str, int]) -> list[str]:
    """An owner for each size, so that the devices have about the same in total: the largest first, to the emptiest.

    This is R. L. Graham's rule ("Bounds on multiprocessing timing anomalies", 1969): at most 4/3 of the best possible.

    Args:
        sizes: in bytes.
        loads: bytes that each device has already; what it gets is added.
    """
    owners = [""] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        owner = min(loads, key=lambda device: loads[device])
        loads[owner] += sizes[index]
        owners[index] = owner
    return owners


def slots_of(
    optimizer: keras.Optimizer, weights: Sequence[keras.Variable]
) -> list[tuple[keras.Variable, keras.Variable]]:
    """The optimizer's variables that belong to one weight each, with their weights: Keras names slots after them.

    Adafactor's rows and columns have the weight's short name alone, and come right before a slot of that weight.
    """
    named = sorted(
        ((weight.path.replace("/", "_") + "_", weight) for weight in weights), key=lambda pair: -len(pair[0])
    )
    pairs: list[tuple[keras.Variable, keras.Variable]] = []
    for slot in reversed(optimizer.variables):
        weight = next((weight for name, weight in named if slot.name.startswith(name)), None)
        if weight is None and pairs and slot.shape and slot.name == pairs[-1][1].name:
            weight = pairs[-1][1]
        if weight is not None:
            pairs.append((slot, weight))
    return pairs[::-1]


def models_with(variables: Sequence[keras.Variable]) -> list[keras.Model]:
    """All living models with any of these variables, also those that only share a layer: they hold stale functions."""
    wanted = set(map(id, variables))
    models = [thing for thing in gc.get_objects() if issubclass(type(thing), keras.Model)]
    return [model for model in models if any(id(variable) in wanted for variable in model.variables)]
