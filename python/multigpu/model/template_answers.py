"""Properties of a parallel model that are its template's."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras

from multigpu.base.refusal import refuse
from multigpu.base.shared import Shared
from multigpu.engines import holders, place_weights
from multigpu.plan.plan import Plan
from multigpu.private_api.callers import is_input_of_layer
from multigpu.private_api.layers import output_names


class TemplateAnswers:
    """Properties for layers, inputs, outputs and types."""

    template: keras.Model
    plan: Plan
    _statistics_of_slices: Callable[[], Sequence[keras.Layer]]

    layers, dtype_policy = Shared(), Shared()
    trainable = Shared()  # freezing works on either model, at any time before `compile()`

    @property
    def input(self) -> Any:
        """The template's symbolic input. If the template has none, the input of its first use in another model."""
        return self.template.input if _is_functional(self.template) else super().input  # type: ignore[misc]  # of keras.Model

    @property
    def output(self) -> Any:
        """The template's symbolic output. If the template has none, the output of its first use in another model."""
        return self.template.output if _is_functional(self.template) else super().output  # type: ignore[misc]  # of keras.Model

    @property
    def input_names(self) -> list[str]:
        """Names of the template's inputs, in order."""
        return [tensor.name for tensor in keras.tree.flatten(self.template.inputs)]

    @property
    def output_names(self) -> list[str]:
        """Names of the template's outputs, in order: the names of the layers that make them."""
        return output_names(self.template)

    def __deepcopy__(self, memo: dict[int, Any]) -> keras.Model:
        """Return a parallel model on the same devices, of a copy of the template."""
        template = copy.deepcopy(self.template, memo)
        place_weights(template, self.plan)
        return type(self)(template, self.plan)  # type: ignore[call-arg]  # of `ParallelModel`

    def __copy__(self) -> keras.Model:
        """Return a deep copy: Keras copies a model with its weights, too."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"<parallel {repr(self.template).strip('<>')}: {self.plan.told(holders(self.template))}>"

    @property
    def __array__(self) -> NoReturn:
        """Raise an error if a layer is called on the model, as with R's pipes. Other callers get no array."""
        if is_input_of_layer():
            raise refuse(
                "a tensor",
                "a parallel model",
                "Add layers to its template, and call `multi_gpu_model()` on the new model.",
            )
        raise AttributeError("__array__")

    def summary(self, *args: Any, print_fn: Callable[[str], None] | None = None, **kwargs: Any) -> None:
        """Print the template's summary, its devices, and how many BatchNormalization layers use slices."""
        self.template.summary(*args, **kwargs, **({} if print_fn is None else {"print_fn": print_fn}))
        (print_fn or print)(f" Parallel: {self.plan.told(holders(self.template))}")
        if layers := self._statistics_of_slices():
            (print_fn or print)(
                f" BatchNormalization: {len(layers)} by the statistics of each slice; of the global batch after "
                "multigpu.synchronize_batch_norm(model)"
            )


def _is_functional(model: keras.Model) -> bool:
    """Return whether Keras made a functional model of the template. There is no public class to check."""
    return hasattr(model, "outputs") and not isinstance(model, keras.Sequential)
