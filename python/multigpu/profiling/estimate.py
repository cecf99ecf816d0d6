"""Estimate the memory of each device, before anything is moved or run."""

from typing import Any

import keras

from multigpu.base.arguments import check_whole_number, shown
from multigpu.base.refusal import refuse
from multigpu.engines import estimate_devices, part_devices, visible_devices
from multigpu.model.template_checks import check_template
from multigpu.plan.groups import Gpus, has_groups
from multigpu.plan.plan import MOST_ROWS, make_plan
from multigpu.profiling.estimate_table import Estimate
from multigpu.saving.template_facade import template_of


def estimate(
    model: keras.Model,
    gpus: Gpus = None,
    batch_size: int = 32,
    optimizer: Any = None,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
) -> Estimate:
    """Return the memory that each device needs for `multi_gpu_model(model, gpus)`, with batches of `batch_size` rows.

    It does not move weights or run the model, and the GPUs need not exist. On TensorFlow, the columns are:

    * parameters, weights (with state such as moving means), optimizer: exact, computed from shapes and types.
    * copies, gradients: an upper bound. All copies and all gradients of a step are assumed to exist at the same time.
      Under mixed precision, copies take half as much.
    * activations: the step of one replica is traced, and the tensors that are needed at the same time are summed, in
      the order of the ops. On a CPU, the memory of rows was 1.1 to 1.2 times as much, for a convolutional net, a
      perceptron and Xception (`bench/memory/estimate_error.py`). Not included: workspaces of libraries such as cuDNN,
      tensors inside the loops of recurrent layers, and the memory that XLA saves. Axes of unknown length count as 128.
    * inputs: rows of the next batch, which several GPUs receive ahead of time. Exact, if the template has fixed shapes.
      A CPU device, which simulates a GPU, does not need this memory.
    * in and out per step: weights, gradients, and rows of inputs and outputs. Rows of large embedding tables depend on
      the data, and are not included.
    * groups: bytes from part to part count as received and sent. The activations of all slices are assumed to exist at
      the same time, as after the last slice has gone forward.

    TensorFlow's own share of a GPU, some hundred MB, is not included.

    On JAX, XLA compiles a step for the devices, so they must exist: `simulate_gpus(8)` makes eight. Activations are the
    memory that XLA plans for the step, without variables and inputs. They include copies and gradients. The loss of
    this step is the mean of squared outputs. XLA may plan differently on GPUs and on CPUs.

    Args:
        model: a template, or a parallel model, whose template is used.
        gpus: as in `multi_gpu_model`; a count of 1 or more, or ids or names. They need not be on this machine. None
            takes the GPUs of this machine.
        batch_size: rows of a batch, of all GPUs together.
        optimizer: an optimizer or the name of one. None takes the model's own, or Keras' default, "rmsprop".
        cpu_merge: as in `multi_gpu_model`.
        cpu_relocation: as in `multi_gpu_model`.

    Returns:
        A tuple with one `DeviceEstimate` per device, which prints as a table; its `parameters`, `weights` and
        `optimizer` are the totals. `layers` lists the layers, to choose where to cut the model, and
        `slices_that_fit(memory)` returns how many slices fit into a device's memory.

    Raises:
        ValueError: `gpus` or `optimizer` is not understood, `batch_size` is not a whole number of 1 or more, or the
            model cannot be a template.

    Example:
        >>> import keras, multigpu
        >>> model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000)])
        >>> multigpu.estimate(model, gpus=2, batch_size=64).weights
        4004000
    """
    template = template_of("model", model)
    parts = part_devices(template) if has_groups(gpus) else ()
    check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32", ", the rows that all GPUs together get")
    plan = make_plan(gpus, cpu_merge, cpu_relocation, visible_devices(), imagined=True, parts=parts)
    check_template(template, groups=bool(plan.groups))
    kind = optimizer if optimizer is not None else getattr(template, "optimizer", None)
    used = _optimizer("rmsprop" if kind is None else kind)
    rows, weights, slots = estimate_devices(template, plan, batch_size, used)
    table = Estimate(rows)
    table.template, table.weights, table.optimizer = template, weights, slots
    table.optimizer_name = type(used).__name__ + (", assumed" if kind is None else "")
    return table


def _optimizer(given: Any) -> keras.Optimizer:
    try:
        return keras.optimizers.get(given)
    except Exception as error:  # Keras raises different errors for values that it does not understand
        raise refuse(
            "`optimizer` to be an optimizer of Keras, or the name of one",
            f"optimizer={shown(given)}",
            "Use `optimizer='adam'`, or None for the model's own.",
        ) from error
