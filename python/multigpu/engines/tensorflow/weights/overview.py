"""Show a plan as a table: what each device stores, receives and sends in a training step."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras

from multigpu.engines.tensorflow.weights.buckets import Bucket, Types, as_stored, buckets_of
from multigpu.engines.tensorflow.weights.chunked_broadcast import transfers_of
from multigpu.engines.tensorflow.weights.embedding_tables import Tables
from multigpu.engines.tensorflow.weights.home_parts import home_parts
from multigpu.engines.tensorflow.weights.place_locate import locate, num_bytes, slots_of
from multigpu.plan.overview import DeviceRow, Overview
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import optimizers_of, sublayers


class Traffic(NamedTuple):
    """The bytes that a device receives and sends in a step, and the number of tensors."""

    received: int
    sent: int
    transfers: int


class Route(NamedTuple):
    """Buckets, and the devices to which they are sent."""

    buckets: list[Bucket]
    devices: Sequence[str]


def overview(
    template: keras.Model, plan: Plan, batch_size: int | None, types: Mapping[int, Sequence[Types]]
) -> Overview:
    """Return the table for a template under a plan. It leaves out rows of large embedding tables.

    Args:
        template: the template.
        plan: the plan.
        batch_size: rows of a batch.
        types: the types of each copy in which weights are sent, by their ids. Others are sent once, as they are stored.
    """
    owners = [*plan.devices, *sorted({locate(variable) for variable in template.variables} - set(plan.devices))]

    def pack(weights: Sequence[keras.Variable]) -> list[Bucket]:
        sent = [(weight, how) for weight in weights for how in types.get(id(weight), [as_stored(weight)])]
        return buckets_of([weight for weight, _ in sent], [how for _, how in sent])

    routes = routes_of(template, plan, pack)
    return Overview(_row(device, template, plan, batch_size, routes) for device in owners)


def _row(device: str, template: keras.Model, plan: Plan, batch_size: int | None, routes: Sequence[Route]) -> DeviceRow:
    slices = plan.slices_on(device)
    return DeviceRow(
        device=device,
        replica=slices[0] if slices else None,
        rows=sum(plan.rows(batch_size)[number] for number in slices) if batch_size is not None and slices else None,
        weights=_bytes_on(device, template.variables),
        slots=_slot_bytes(device, template),
        **traffic(device, routes)._asdict(),
    )


def routes_of(
    template: keras.Model, plan: Plan, pack: Callable[[Sequence[keras.Variable]], list[Bucket]]
) -> list[Route]:
    """Return the buckets of all weights that are sent, and the devices to which they are sent.

    Args:
        template: the template.
        plan: the plan.
        pack: a function that makes the buckets of weights.
    """
    if not plan.groups:
        return [Route(pack(Tables(sublayers(template)).without(template.trainable_variables)), plan.devices)]
    weights = template.trainable_variables
    homes = home_parts(template, weights, plan.parts)
    of_part = [[v for v, home in zip(weights, homes, strict=True) if home == part] for part in range(len(plan.parts))]
    return [
        Route(pack(variables), tuple(dict.fromkeys(group[part] for group in plan.groups)))
        for part, variables in enumerate(of_part)
    ]


def traffic(device: str, routes: Sequence[Route]) -> Traffic:
    """Return the bytes of weights and gradients that a device receives and sends in a step."""
    moves = [
        (move.receiver == device, move.share * bucket.sent_bytes, move.share * bucket.reduced_bytes)
        for buckets, devices in routes
        for bucket in buckets
        for move in transfers_of(bucket, buckets, devices, device)
    ]
    received = sum(weights if comes else gradients for comes, weights, gradients in moves)
    sent = sum(gradients if comes else weights for comes, weights, gradients in moves)  # backward on the same way
    return Traffic(round(received), round(sent), transfers=2 * len(moves))


def _bytes_on(device: str, variables: Sequence[keras.Variable]) -> int:
    return sum(num_bytes(variable) for variable in variables if locate(variable) == device)


def _slot_bytes(device: str, template: keras.Model) -> int | None:
    optimizers = [optimizer for optimizer in optimizers_of(template) if optimizer.built]
    slots = [slot for optimizer in optimizers for slot, _ in slots_of(optimizer, template.trainable_variables)]
    return _bytes_on(device, slots) if optimizers else None
