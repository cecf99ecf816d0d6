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

OPEN_LENGTH = 128  # assumed length of an axis of unknown length


class TrialStep:
    """A training step for any template, whose loss is the mean of squared outputs.

    `StepFunction` takes it as a model. Its variables are shapes without values.

    Attributes:
        slots: the optimizer's variables.
    """

    jit_compile, run_eagerly, steps_per_execution = True, False, 1

    def __init__(self, template: keras.Model, optimizer: keras.Optimizer) -> None:
        self._template = template
        self._optimizer = type(optimizer).from_config(optimizer.get_config())
        # while shapes are asked for, slots take no memory
        jax.eval_shape(lambda: self._optimizer.build(template.trainable_variables))
        self.slots = self._optimizer.variables

    def train_step(self, state: Any, x: Any) -> tuple[Any, Any]:
        """Run one step on inputs."""
        trainable, others, slots, metrics = state

        def loss_of(trainable: Any) -> tuple[Any, Any]:
            outputs, new, losses = self._template.stateless_call(
                trainable, others, x, training=True, return_losses=True
            )
            return sum(map(_size, jax.tree.leaves(outputs)), start=sum(losses)), new

        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        trainable, slots = self._optimizer.stateless_apply(slots, gradients, trainable)
        return {"loss": loss}, (trainable, others, slots, metrics)

    def compiled(self, layout: Layout, inputs: Any) -> Any:
        """Return the step's program for the devices of a layout."""
        template = self._template
        kinds: Any = template.trainable_variables, template.non_trainable_variables, self.slots, []
        state = tuple(
            [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=layout.at_rest(v)) for v in kind] for kind in kinds
        )
        run = StepFunction(self, "train", layout, cpu_merge=False).run
        return run.lower(state, inputs).compile()

    def work_memory(self, layout: Layout, inputs: Any) -> int:
        """Return the bytes that a device needs for gathered weights, gradients and activations."""
        memory = self.compiled(layout, inputs).memory_analysis()
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
            "Set KERAS_BACKEND=tensorflow, which estimates for any devices; or, in Python, first call "
            f"`multigpu.simulate_gpus({len(plan.devices)})`.",
        )
    layout, step = layout_of(plan), TrialStep(template, optimizer)
    sides = [_batch(template, side, batch_size, layout) for side in ("inputs", "outputs")]
    come, go = (sum(num_bytes(x.value.shape, x.value) for x in side) // layout.mesh.size for side in sides)
    activations = step.work_memory(layout, batch_of(template, batch_size, layout)) if sides[0] else None
    kept = [[], []] if plan.cpu_relocation else [template.weights, step.slots]
    weights, slots = (sum(bytes_on_device(variable, layout) for variable in each) for each in kept)
    moved = moved_in_step(template, layout)
    same: Any = {
        "slices": 1,
        "parameters": sum(math.prod(layout.in_step(v).shard_shape(tuple(v.shape))) for v in kept[0]),
        "weights": weights,
        "optimizer": slots,
        "copies": None,  # XLA plans them with the activations
        "gradients": None,
        "activations": activations,
        "inputs": come,
        "per_slice": activations,
        "total": weights + slots + come + (activations or 0),
        "received": moved + come,
        "sent": moved + go,
    }
    rows = zip(plan.devices, plan.rows(batch_size), strict=True)
    all_weights, all_slots = (sum(num_bytes(v.shape, v) for v in each) for each in (template.weights, step.slots))
    return [DeviceEstimate(device=name, rows=number, **same) for name, number in rows], all_weights, all_slots


def batch_of(template: keras.Model, rows: int, layout: Layout) -> Any:
    """Return the inputs of a template as they are in a step, in its own structure."""
    inputs = _batch(template, "inputs", rows, layout)
    return inputs[0] if isinstance(template, keras.Sequential) else keras.tree.pack_sequence_as(template.input, inputs)


def _batch(template: keras.Model, side: str, rows: int, layout: Layout) -> list[Rows]:
    """Return inputs or outputs as they are in a step. The list is empty if the template does not know their shapes."""
    filled = rows - rows % -layout.mesh.size
    shapes = [
        jax.ShapeDtypeStruct((filled, *(n or OPEN_LENGTH for n in x.shape[1:])), x.dtype, sharding=layout.divided)
        for x in keras.tree.flatten(getattr(template, side, None) or [])
    ]
    return [Rows(shape, (rows,)) for shape in shapes]
