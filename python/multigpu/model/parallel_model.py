"""The parallel model: used like the template, and spread over devices."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import keras

from multigpu.base.arguments import check_whole_number
from multigpu.base.refusal import refuse
from multigpu.base.shared import Shared
from multigpu.engines import MultiWorkerTraining, Training, holders, place_weights
from multigpu.model.overrides import Own, OwnProperty
from multigpu.model.redirected_template import own_step, redirected_template
from multigpu.plan.overview import Overview
from multigpu.plan.plan import MOST_ROWS, Plan
from multigpu.private_api.callers import is_input_of_layer
from multigpu.private_api.hooks import AddsNoMask
from multigpu.private_api.layers import compilation, compile_arguments, output_names, show_input
from multigpu.saving.template_facade import TemplateFacade, is_part


class ParallelModel(TemplateFacade, AddsNoMask, Training):
    """A Keras model that spreads each call over several devices. `multi_gpu_model()` makes it.

    It owns nothing: weights, layers and optimizer belong to the template, so nothing has to be synchronized. Attributes
    that it does not define are the template's.

    Attributes:
        template: the model that owns the weights.
        plan: the devices that it runs on.
    """

    optimizer, run_eagerly, steps_per_execution, supports_masking = Shared(), Shared(), Shared(), Shared()
    compiled, compute_output_spec, compute_output_shape = Shared(), Shared(), Shared()
    layers, dtype_policy = Shared(), Shared()
    trainable = Shared()  # freezing works on either model, at any time before `compile()`

    def __init__(self, template: keras.Model, plan: Plan):
        # Keras reads the signature of `call` to pass on `training` and masks, so it must be the template's.
        call = functools.partial(type(self).call, self)
        call.__signature__ = inspect.signature(template.call)  # type: ignore[attr-defined]
        object.__setattr__(self, "call", call)
        super().__init__(name=template.name, dtype=template.variable_dtype, autocast=False)
        self.plan = plan
        self.__dict__["_redirected"] = redirected_template(self, template)  # Keras does not track it here
        self.template = template
        if isinstance(template, keras.Sequential):
            show_input(self, template)
        self.built = True
        self._begin()
        self._compilation: object = None  # the template's compilation that this model follows
        self._follow_compilation()

    def __getattr__(self, name: str) -> Any:
        template = self.__dict__.get("template")
        if template is None or (name.startswith("_") and not is_part(template, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._redirected, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the template, unless it belongs to Keras or to this class."""
        known = name.startswith("_") or name in self.__dict__ or hasattr(type(self), name)
        if known or "template" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.template, name, value)

    stop_evaluating = stop_predicting = False  # which loops of Keras set; two threads may run them
    from_config, rematerialized_call = Own("from_config"), Own("rematerialized_call")
    build, quantize = OwnProperty("build"), OwnProperty("quantize")  # which Keras assigns to each model
    compute_mask = Own("compute_mask")

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Configure training, also for the template: both share one optimizer.

        It accepts the arguments of the template's own `compile()`.
        """
        self._check_scope()
        self.template.compile(*args, **kwargs)
        self._follow_compilation()

    def _follow_compilation(self) -> None:
        """Compile this model as the template was compiled last: by itself, or by any of its parallel models."""
        if not self.template.compiled or compilation(self.template) is self._compilation:
            return  # a class may define its own `compile()` that does not call Keras'
        self._compilation = compilation(self.template)
        arguments = compile_arguments(self.template)
        optimizer = self.template.optimizer  # of a class that defines `compile()`, it may be several
        kind = optimizer if isinstance(optimizer, keras.Optimizer) else None
        self._compile_as({**arguments, "optimizer": kind, "auto_scale_loss": False})
        self.optimizer = optimizer

    def _own_step(self, step: str) -> Callable[[Any], Any]:
        """Return the template's own step or Keras' step. Its calls of the template's methods go to this model."""
        return own_step(self._redirected, step)

    # the parts of a step are the template's: its own or Keras'
    compute_loss = Own("compute_loss")
    compute_metrics = Own("compute_metrics")
    stateless_compute_loss = Own("stateless_compute_loss")
    metrics = OwnProperty("metrics")

    @property
    def _beneath(self) -> type:
        """The class whose methods run when the template's own methods call `super()`."""
        return type(self)

    @property
    def input(self) -> Any:
        """The template's symbolic input. If the template has none, the input of its first use in another model."""
        return self.template.input if _is_functional(self.template) else super().input

    @property
    def output(self) -> Any:
        """The template's symbolic output. If the template has none, the output of its first use in another model."""
        return self.template.output if _is_functional(self.template) else super().output

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
        return type(self)(template, self.plan)

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

    def overview(self, batch_size: int | None = None) -> Overview:
        """Return a table of what each device stores, receives and sends in a training step.

        Args:
            batch_size: rows of a batch, to show how many each replica gets.

        Returns:
            A tuple with one `DeviceRow` per device, sizes in bytes, which prints as a table.

        Raises:
            ValueError: `batch_size` is not a whole number of 1 or more.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32")
        return self._overview(batch_size)


class MultiWorkerModel(ParallelModel, MultiWorkerTraining):
    """A parallel model that several workers train together."""


def _is_functional(model: keras.Model) -> bool:
    """Return whether Keras made a functional model of the template. There is no public class to check."""
    return hasattr(model, "outputs") and not isinstance(model, keras.Sequential)
