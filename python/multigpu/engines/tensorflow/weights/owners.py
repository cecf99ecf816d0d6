"""Choose one owner for each weight: the device that stores and updates it, with its optimizer slots."""

from collections.abc import Iterator, Sequence

import keras

from multigpu.engines.tensorflow.weights.buckets import BUCKET_BYTES
from multigpu.engines.tensorflow.weights.home_parts import home_devices
from multigpu.engines.tensorflow.weights.move import move
from multigpu.engines.tensorflow.weights.place_locate import num_bytes, stored_dtype
from multigpu.plan.plan import Plan

BLOCKS_OF_OWNER = 4  # so many that owners are balanced, and take turns in the order of use


def place_weights(model: keras.Model, plan: Plan) -> None:
    """Move each variable of a model, in place, to its owner in the plan."""
    owners = owners_of(model, plan)
    move([(variable, owners[id(variable)]) for variable in model.variables])


def owners_of(model: keras.Model, plan: Plan) -> dict[int, str]:
    """Return the owner of each variable of a model, by the variable's id.

    With `cpu_relocation`, the CPU owns all variables. Otherwise weights are spread over the devices, balanced by bytes,
    and then floating-point state, such as moving means. Counters and seeds, which are tiny and read by the CPU, stay
    there. Small weights that are used one after the other have one owner, and are sent together. The weights of a part
    are spread over the devices on which the part runs.
    """
    owners = dict.fromkeys(map(id, model.variables), "CPU:0")
    if not plan.cpu_relocation:
        loads = dict.fromkeys(plan.devices, 0)
        for kind in (model.trainable_variables, model.non_trainable_variables):
            for devices, variables in _by_devices(model, kind, plan):
                floating = [variable for variable in variables if stored_dtype(variable).is_floating]
                blocks = _blocks(floating, len(devices))
                balanced = balance([sum(map(num_bytes, block)) for block in blocks], loads, devices)
                owners.update((id(v), owner) for block, owner in zip(blocks, balanced, strict=True) for v in block)
    return owners


def _by_devices(
    model: keras.Model, variables: Sequence[keras.Variable], plan: Plan
) -> Iterator[tuple[tuple[str, ...], list[keras.Variable]]]:
    """Return the variables of each part with the part's devices, and the variables of no part with all devices."""
    homes = home_devices(model) if plan.groups else {}
    for number, part in enumerate(plan.parts):
        devices = tuple(dict.fromkeys(group[number] for group in plan.groups))
        yield devices, [variable for variable in variables if homes.get(id(variable)) == part]
    yield plan.devices, [variable for variable in variables if homes.get(id(variable)) not in plan.parts]


def _blocks(variables: Sequence[keras.Variable], num_owners: int) -> list[list[keras.Variable]]:
    """Return groups of variables with one owner: weights in the order of use; all state, if it fits into one bucket."""
    total = sum(map(num_bytes, variables))
    is_state = not any(variable.trainable for variable in variables)
    limit = BUCKET_BYTES if is_state and total < BUCKET_BYTES else total / (BLOCKS_OF_OWNER * num_owners)
    large = [[variable] for variable in variables if num_bytes(variable) >= limit]
    blocks: list[list[keras.Variable]] = [[]]
    for variable in variables:
        if num_bytes(variable) < limit:
            blocks[-1].append(variable)
            if sum(map(num_bytes, blocks[-1])) >= limit:
                blocks.append([])
    return [block for block in [*large, *blocks] if block]


def balance(sizes: Sequence[int], loads: dict[str, int], devices: Sequence[str]) -> list[str]:
    """Return an owner for each size that balances the devices: the largest first, to the device with the least.

    This is R. L. Graham's rule ("Bounds on multiprocessing timing anomalies", 1969): at most 4/3 of the best possible.

    Args:
        sizes: the sizes in bytes.
        loads: the bytes that each device has already. New bytes are added to them.
        devices: the devices to choose from.
    """
    owners = [""] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        owner = min(devices, key=lambda device: loads[device])
        loads[owner] += sizes[index]
        owners[index] = owner
    return owners
