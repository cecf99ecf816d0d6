"""Estimate each device's bytes, from the plan of a parallel model and a trace of one replica."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.prefetch import ON_HOST
from multigpu.engines.tensorflow.profiling.activation_memory import OPEN_LENGTH, Activations, activations_of
from multigpu.engines.tensorflow.profiling.optimizer_memory import slot_bytes
from multigpu.engines.tensorflow.weights.buckets import as_stored, make_buckets
from multigpu.engines.tensorflow.weights.overview import Route, routes_of, traffic
from multigpu.engines.tensorflow.weights.owners import owners_of
from multigpu.engines.tensorflow.weights.place_locate import num_bytes
from multigpu.plan.estimates import DeviceEstimate
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import symbolic


def estimate_devices(
    template: keras.Model, plan: Plan, batch_size: int, optimizer: keras.Optimizer
) -> tuple[list[DeviceEstimate], int, int]:
    """Return the bytes that each device would store, receive and send, and of all weights, and of the optimizer."""
    owners = owners_of(template, plan)
    routes = routes_of(
        template, plan, lambda weights: make_buckets([(owners[id(v)], as_stored(v), tuple(v.shape)) for v in weights])
    )
    slots = slot_bytes(optimizer, template.trainable_variables)
    activations = {rows: activations_of(template, rows, plan.parts) for rows in set(plan.rows(batch_size))}
    devices = [*plan.devices, *sorted(set(owners.values()) - set(plan.devices))]
    rows = [_row(device, template, plan, batch_size, owners, routes, slots, activations) for device in devices]
    return rows, sum(row.weights for row in rows), sum(slots.values())


def _row(
    device: str,
    template: keras.Model,
    plan: Plan,
    batch_size: int,
    owners: dict[int, str],
    routes: Sequence[Route],
    slots: dict[int, int],
    activations: dict[int, list[Activations]],
) -> DeviceEstimate:
    own = [variable for variable in template.weights if owners[id(variable)] == device]
    numbers = plan.slices_on(device)
    rows = [plan.rows(batch_size)[number] for number in numbers]
    part = plan.replicas[numbers[0]].index(device) if numbers else 0
    needed = [activations[n][part] for n in rows]
    known = all(slice_.at_once is not None for slice_ in needed)
    sizes: dict[str, Any] = {
        "weights": sum(map(num_bytes, own)),
        "optimizer": sum(slots.get(id(variable), 0) for variable in own),
        **_travelling(device, routes, len([n for n in rows if n])),
        "activations": sum(slice_.at_once or 0 for slice_ in needed) if known else None,
        "inputs": sum(rows) * _row_bytes(template, "inputs", ON_HOST) if _gets_ahead(plan) else 0,
    }
    first, last = part == 0, part == max(len(plan.parts) - 1, 0)
    moved = traffic(device, routes)
    come = sum(rows) * _row_bytes(template, "inputs") if first else 0
    go = sum(rows) * _row_bytes(template, "outputs") if last else 0
    return DeviceEstimate(
        device=device,
        slices=len(rows),
        rows=sum(rows),
        parameters=sum(math.prod(variable.shape) for variable in own),
        **sizes,
        per_slice=max((slice_.at_once or 0 for slice_ in needed), default=0) if known else None,
        total=sum(size or 0 for size in sizes.values()),
        received=moved.received + come + sum(slice_.received for slice_ in needed),
        sent=moved.sent + go + sum(slice_.sent for slice_ in needed),
    )


def _travelling(device: str, routes: Sequence[Route], num_slices: int) -> dict[str, int]:
    """Return the bytes of copies of others' weights, and of gradients: of slices, and summed for own weights."""
    at_work = [bucket for buckets, devices in routes if device in devices and num_slices for bucket in buckets]
    owned = [bucket for buckets, _ in routes for bucket in buckets if bucket.owner == device]
    given = sum(bucket.reduced_bytes for bucket in at_work) * min(num_slices, 2)  # a sum and its next term
    return {
        "copies": sum(bucket.sent_bytes for bucket in at_work if bucket.owner != device),
        "gradients": given + sum(bucket.reduced_bytes for bucket in owned),
    }


def _gets_ahead(plan: Plan) -> bool:
    """Return whether rows are sent before their step, also to a CPU device, which simulates a GPU."""
    return len(plan.devices) > 1 and not plan.groups


def _row_bytes(template: keras.Model, side: str, without: Sequence[str] = ("string",)) -> int:
    """Return the known bytes of one row of all inputs or outputs. An axis of open length counts as 128."""
    return sum(
        math.prod(n or OPEN_LENGTH for n in x.shape[1:]) * tf.as_dtype(x.dtype).size
        for x in symbolic(template, side)
        if x.dtype not in without
    )
