"""The weights that lead to the results of a call which is traced as a function."""

from dataclasses import dataclass

import tensorflow as tf

from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.replicas.template import TemplateState
from multigpu.engines.tensorflow.replicas.traced import Traced
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure


@dataclass(frozen=True)
class WeightPaths:
    """The paths from weights to results of a call.

    Attributes:
        template: the state of the template.
        traced: what the trace of its replicas shows.
        structure: the results of the replicas in the call.
    """

    template: TemplateState
    traced: Traced
    structure: GradientStructure

    def behind(self, tensor: tf.Tensor) -> list[tf.Variable]:
        """Return the weights that lead to a tensor of this trace, through replicas or read for the global batch."""
        reach = self.traced.reach
        assert reach is not None  # it was traced
        captured = [(id(outside), inside) for outside, inside in tensor.graph.captures if outside.dtype == tf.resource]
        used, read = self.structure.behind(tensor, [inside for _, inside in captured])
        through = [backing_variable(self.template.weights[number]) for number in reach.weights_of(used)]
        handles = {captured[number][0] for number in read} | {id(weight.handle) for weight in through}
        handles |= reach.tables_of(used)
        known = [*map(backing_variable, self.template.model.trainable_variables), *reach.tables]
        return list({id(weight): weight for weight in known if id(weight.handle) in handles}.values())

    def added(self) -> list[tf.Variable]:
        """Return the weights that are only added to results, unless the global batch reads weights as well.

        See `Reach.added`.
        """
        reach = self.traced.reach
        assert reach is not None  # it was traced
        numbers = [] if self.traced.global_batch.has_calls else reach.added()
        return [backing_variable(self.template.weights[number]) for number in numbers]
