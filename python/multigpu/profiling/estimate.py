"""Will it fit? What a parallel model of a template would take of each device, before anything is moved or run."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.arguments import check_model, check_whole_number
from multigpu.engines.tensorflow.batches.prefetch import ON_HOST
from multigpu.engines.tensorflow.devices.logical import visible_devices
from multigpu.engines.tensorflow.profiling.activation_memory import OPEN_LENGTH, Activations, activations_of
from multigpu.engines.tensorflow.weights.buckets import as_stored, make_buckets
from multigpu.engines.tensorflow.weights.home_parts import part_devices
from multigpu.engines.tensorflow.weights.overview import Route, routes_of, traffic
from multigpu.engines.tensorflow.weights.owners import owners_of
from multigpu.engines.tensorflow.weights.place_locate import num_bytes
from multigpu.model.parallel_model import ParallelModel
from multigpu.model.template_checks import check_template
from multigpu.plan.groups import Gpus, has_groups
from multigpu.plan.plan import MOST_ROWS, Plan, make_plan
from multigpu.profiling.estimate_table import DeviceEstimate, Estimate
from multigpu.profiling.optimizer_memory import slot_bytes


def estimate(
    model: keras.Model,
    gpus: Gpus = None,
    batch_size: int = 32,
    optimizer: Any = None,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
) -> Estimate:
    """What `multi_gpu_model(model, gpus)` would take of each device with batches of `batch_size` rows.

    Nothing is moved, and nothing is run; the GPUs need not be there. How each number is got, and how far it can be off:

    * parameters, weights (with state such as moving means), optimizer: counted, from shapes and types, and assigned to
      owners as they will be. Exact.
    * copies, gradients: counted in the types that are stored. All copies and all gradients of a step are assumed to be
      there at once, which is the most possible; under mixed precision copies take half of it.
    * activations: the step of one replica is traced, and the tensors that are needed at the same time are added up, if
      ops run in the order in which they were made. On a CPU the memory that rows took in training was 1.1 to 1.2
      times this, for a convolutional net, a perceptron and Xception (`bench/memory/estimate_error.py`). It leaves out
      what libraries need to work in, such as cuDNN's workspaces, what is in loops of recurrent layers, and what XLA
      saves.
      Axes of open length count as 128.
    * inputs: rows of the next batch, which several GPUs get ahead of time. Counted, as far as the template tells
      shapes; also for a CPU device, which stands for a GPU and needs none of it.
    * in and out per step: weights and gradients by the way they will go, and rows of inputs and outputs. Rows of large
      embedding tables depend on the data and are left out.
    * groups: what goes from part to part is counted as received and sent. The activations of all slices are assumed to
      be there at once, as they are when the last slice has gone forward and none has come back.
    * TensorFlow's own share of a GPU, some hundred MB, is left out.

    Args:
        model: a template, or a parallel model, whose template is taken.
        gpus: as in `multi_gpu_model`; a count of 1 or more, or ids or names. They need not be on this machine. None
            takes those that are.
        batch_size: rows of a batch, of all GPUs together.
        optimizer: an optimizer or the name of one. None takes the model's own, or Keras' default, "rmsprop".
        cpu_merge: as in `multi_gpu_model`.
        cpu_relocation: as in `multi_gpu_model`.

    Returns:
        A tuple with one `DeviceEstimate` per device, which prints as a table; its `parameters`, `weights` and
        `optimizer` are the totals. `layers` lists the layers, to choose where to cut the model, and
        `slices_that_fit(memory)` says how long a pipeline can be.

    Raises:
        ValueError: `gpus` or `optimizer` is not understood, `batch_size` is no whole number of 1 or more, or the model
            is no template.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000)])
        >>> multigpu.estimate(model, gpus=2, batch_size=64).weights
        4004000
    """
    template = model.template if isinstance(model, ParallelModel) else model
    check_model("model", template)
    parts = part_devices(template) if has_groups(gpus) else ()
    check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32", ", the rows that all GPUs together get")
    plan = make_plan(gpus, cpu_merge, cpu_relocation, visible_devices(), imagined=True, parts=parts)
    check_template(template, groups=bool(plan.groups))
    owners = owners_of(template, plan)
    routes = routes_of(
        template, plan, lambda weights: make_buckets([(owners[id(v)], as_stored(v), tuple(v.shape)) for v in weights])
    )
    kind = optimizer if optimizer is not None else getattr(template, "optimizer", None) or "rmsprop"
    slots = slot_bytes(kind, template.trainable_variables)
    activations = {rows: activations_of(template, rows, plan.parts) for rows in set(plan.rows(batch_size))}
    devices = [*plan.devices, *sorted(set(owners.values()) - set(plan.devices))]
    table = Estimate(_row(device, template, plan, batch_size, owners, routes, slots, activations) for device in devices)
    table.template = template
    return table


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
    """Copies of the weights that others own, and gradients: those of slices, and the sum of those of own weights."""
    at_work = [bucket for buckets, devices in routes if device in devices and num_slices for bucket in buckets]
    owned = [bucket for buckets, _ in routes for bucket in buckets if bucket.owner == device]
    given = sum(bucket.reduced_bytes for bucket in at_work) * min(num_slices, 2)  # a sum, and what is added to it
    return {
        "copies": sum(bucket.sent_bytes for bucket in at_work if bucket.owner != device),
        "gradients": given + sum(bucket.reduced_bytes for bucket in owned),
    }


def _gets_ahead(plan: Plan) -> bool:
    """Whether rows are sent before their step; also to a CPU device, which stands for a GPU."""
    return len(plan.devices) > 1 and not plan.groups


def _row_bytes(template: keras.Model, side: str, without: Sequence[str] = ("string",)) -> int:
    """Bytes of one row of all inputs or outputs, as far as a template tells. An axis of open length counts as 128."""
    tensors = keras.tree.flatten(getattr(template, side, None) or [])
    known = [x for x in tensors if x.dtype not in without]
    return sum(
        tf.TensorShape([n or OPEN_LENGTH for n in x.shape[1:]]).num_elements() * tf.as_dtype(x.dtype).size
        for x in known
    )
