"""Estimate the memory of each device: XLA compiles a training step for these devices, and reports what it needs."""

import math
from typing import Any

import jax
import keras

from multigpu.base.refusal import refuse
from multigpu.engines.jax.devices import visible_devices
from multigpu.engines.jax.layout import Layout
from multigpu.engines.jax.overview import bytes_on_device, moved_in_step, num_bytes
from multigpu.engines.jax.placement import layout_of
from multigpu.engines.jax.rows import Rows
from multigpu.engines.jax.steps import StepFunction
from multigpu.plan.estimates import DeviceEstimate
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import inputs_of, symbolic

OPEN_LENGTH = 128  # assumed length of an axis of unknown length


class TrialModel(keras.Model):
    """A model that trains a template on the mean of squared outputs. Its optimizer's variables have no values."""

    def __init__(self, template: keras.Model, optimizer: keras.Optimizer) -> None:
        super().__init__()
        self._template, self.built = template, True
        self.compile(type(optimizer).from_config(optimizer.get_config()), jit_compile=True)
        jax.eval_shape(lambda: self.optimizer.build(template.trainable_variables))

    def call(self, x: Any, training: bool = True) -> Any:
        """Call the template."""
        return self._template(x, training=training)

    def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
        """Return the loss of any outputs, with those that layers have added."""
        return sum(map(_size, jax.tree.leaves(y_pred)), start=sum(self.losses))

    def compiled_step(self, layout: Layout, inputs: Any) -> Any:
        """Return the step's program for the devices of a layout."""
        state = self.trainable_variables, self.non_trainable_variables, self.optimizer.variables, self.metrics_variables
        kept = [[jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=layout.at_rest(v)) for v in kind] for kind in state]
        run = StepFunction(self, "train", layout, cpu_merge=False).run
        return run.lower(tuple(kept), (inputs,)).compile()

    def work_memory(self, layout: Layout, inputs: Any) -> int:
        """Return the bytes that a device needs for gathered weights, gradients and activations."""
        memory = self.compiled_step(layout, inputs).memory_analysis()
        return memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes


def _size(outputs: jax.Array) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.cast(outputs, "float32")))


def estimate_devices(
    template: keras.Model, plan: Plan, batch_size: int, optimizer: keras.Optimizer
) -> tuple[list[DeviceEstimate], int, int]:
    """Return the bytes that each device would hold and exchange, the bytes of all weights, and of the optimizer.

    Raises:
        ValueError: a device does not exist, so that XLA cannot compile a step for it.
    """
    there = visible_devices()["others"]
    if not set(plan.devices) <= set(there):
        raise refuse(
            "devices that exist, because on JAX, XLA compiles a step for them",
            f"{', '.join(plan.devices)}, on a machine with {', '.join(there)}",
            f"Call `multigpu.simulate_gpus({len(plan.devices)})` right after the imports, in a fresh process; or set "
            "`KERAS_BACKEND=tensorflow`, which estimates for any devices.",
        )
    layout, trial = layout_of(plan), TrialModel(template, optimizer)
    variables = template.weights, trial.optimizer.variables
    filled = batch_size - batch_size % -layout.mesh.size
    come, go = (
        sum(num_bytes((filled, *(n or OPEN_LENGTH for n in x.shape[1:])), x) for x in symbolic(template, side))
        // layout.mesh.size
        for side in ("inputs", "outputs")
    )
    knows_inputs = bool(symbolic(template, "inputs"))
    activations = trial.work_memory(layout, batch_of(template, batch_size, layout)) if knows_inputs else None
    kept = ([], []) if plan.cpu_relocation else variables
    weights, slots = (sum(bytes_on_device(variable, layout) for variable in each) for each in kept)
    moved = moved_in_step(template, layout)
    same: Any = {
        "slices": 1,
        "parameters": sum(math.prod(layout.in_step(v).shard_shape(tuple(v.shape))) for v in kept[0]),
        "weights": weights,
        "optimizer": slots,
        "activations": activations,  # XLA plans copies and gradients with them
        "inputs": come,
        "total": weights + slots + come + (activations or 0),
        "received": moved + come,
        "sent": moved + go,
    }
    rows = zip(plan.devices, plan.rows(batch_size), strict=True)
    all_weights, all_slots = (sum(num_bytes(v.shape, v) for v in each) for each in variables)
    return [DeviceEstimate(device=name, rows=number, **same) for name, number in rows], all_weights, all_slots


def batch_of(template: keras.Model, rows: int, layout: Layout) -> Any:
    """Return the inputs of a template as they are in a step, in its own structure."""
    return keras.tree.map_structure(
        lambda x: Rows(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout.divided), (rows,)),
        inputs_of(template, rows - rows % -layout.mesh.size, OPEN_LENGTH),
    )
