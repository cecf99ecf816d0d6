"""How a call reaches `spread`: inside a function that is being traced, as a function of its own, or op by op."""

from typing import Any

import keras
import tensorflow as tf

from multigpu.batch import Batch
from multigpu.led_calls import call_directly
from multigpu.masks import mask_of, with_mask
from multigpu.place_locate import memory
from multigpu.plan import Plan
from multigpu.spread import Merged, spread
from multigpu.synchronized import SharedStatistics
from multigpu.tables import Tables
from multigpu.template import kept_by_keras, sublayers, wants_jit


class SpreadCall:
    """Calls of a template, spread over the devices of a plan."""

    def __init__(self, template: keras.Model, plan: Plan):
        self._template = template
        self._plan = plan
        self._as_function = tf.function(self._call_with_masks, autograph=False, reduce_retracing=True)

    def __call__(self, args: tuple, kwargs: dict[str, Any], run_eagerly: bool) -> Merged:
        """Outputs and added losses for one batch."""
        if not tf.executing_eagerly():
            return self._spread(Batch(args, kwargs), eager=False)
        if run_eagerly or tf.config.functions_run_eagerly():
            return self._spread(Batch(args, kwargs), eager=True)
        masks = [mask_of(leaf) for leaf in keras.tree.flatten((args, kwargs))]
        outputs, output_masks, losses = self._as_function(args, kwargs, masks, self._fingerprint())
        return Merged(_with_masks(outputs, output_masks), losses)

    def _call_with_masks(self, args: tuple, kwargs: dict[str, Any], masks: list, fingerprint: tuple) -> tuple:
        """A call from outside of any function, traced as one, so that its replicas run at the same time."""
        del fingerprint  # part of the key under which TensorFlow keeps the trace
        args, kwargs = _with_masks((args, kwargs), masks)
        merged = self._spread(Batch(args, kwargs), eager=False)
        return merged.outputs, [mask_of(x) for x in keras.tree.flatten(merged.outputs)], merged.losses

    def _spread(self, batch: Batch, eager: bool) -> Merged:
        template = self._template
        layers, known = sublayers(template), set(map(id, template.variables))
        statistics, tables = SharedStatistics(layers, self._plan.devices), Tables(layers)
        merged = spread(
            lambda *args, **kwargs: call_directly(template, args, kwargs),
            batch,
            tables.without(template.trainable_variables),
            tables.without(template.non_trainable_variables),
            self._plan,
            statistics,
            tables,
            kept_by_keras(template),
            jit_compile=not (eager or statistics.layers or tables.layers) and wants_jit(template),
            eager=eager,
        )
        self._refuse_new_variables(known)
        return merged

    def _refuse_new_variables(self, known: set[int]) -> None:
        """A weight that is made in the replicas belongs to none of them, and would never be trained."""
        new = [variable.path for variable in self._template.variables if id(variable) not in known]
        if new:
            raise ValueError(
                "Expected a built model, whose weights exist. "
                f"Received: {self._template.name!r}, which made the weight {new[0]!r} when it was first called. "
                "Call the template once on a batch before `multi_gpu_model()`."
            )

    def _fingerprint(self) -> tuple:
        """What a trace depends on besides its arguments: what is frozen, where the weights are, how they compile."""
        template = self._template
        frozen = [layer.trainable for layer in sublayers(template)]
        variables = [(variable.trainable, memory(variable)) for variable in template.variables]
        return (wants_jit(template), *frozen, *variables)


def _with_masks(structure: Any, masks: list[tf.Tensor | None]) -> Any:
    leaves = keras.tree.flatten(structure)
    masked = [with_mask(leaf, mask) for leaf, mask in zip(leaves, masks, strict=True)]
    return keras.tree.pack_sequence_as(structure, masked)
