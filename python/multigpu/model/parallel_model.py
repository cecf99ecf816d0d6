"""The parallel model: called, trained and asked like the template, and spread over devices."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.arguments import check_whole_number
from multigpu.engines import MultiWorkerTraining, Training
from multigpu.model.overrides import Own, OwnProperty, Shared
from multigpu.model.redirected_template import own_step, redirected_template
from multigpu.model.template_answers import TemplateAnswers
from multigpu.plan.overview import Overview
from multigpu.plan.plan import MOST_ROWS, Plan
from multigpu.private_api.hooks import AddsNoMask
from multigpu.private_api.layers import compilation, compile_arguments, show_input
from multigpu.saving.template_facade import TemplateFacade, is_part


class ParallelModel(TemplateAnswers, TemplateFacade, AddsNoMask, Training):
    """A Keras model whose every call is spread over several devices. Made by `multi_gpu_model()`.

    It owns nothing: weights, layers and optimizer are the template's, so there is nothing to synchronise. What is
    asked of it and not answered here is answered by the template.

    Attributes:
        template: the model that owns the weights.
        plan: the devices at work.
    """

    optimizer, run_eagerly, steps_per_execution, supports_masking = Shared(), Shared(), Shared(), Shared()
    compiled = Shared()

    def __init__(self, template: keras.Model, plan: Plan):
        # Keras reads the signature of `call` to pass on `training` and masks: it has to be the template's.
        call = functools.partial(type(self).call, self)
        call.__signature__ = inspect.signature(template.call)  # type: ignore[attr-defined]
        object.__setattr__(self, "call", call)
        super().__init__(name=template.name, dtype=template.variable_dtype, autocast=False)
        for name in ("build", "quantize"):  # as Keras has them for the parallel model alone
            del self.__dict__[name]
        self.plan = plan
        self.__dict__["_redirected"] = redirected_template(self, template)  # set so, Keras does not track it
        self.template = template
        if isinstance(template, keras.Sequential):
            show_input(self, template)
        self.built = True
        self._begin()
        self._compilation: object = None  # of the template, that this one is compiled like
        self._follow_compilation()

    def __getattr__(self, name: str) -> Any:
        template = self.__dict__.get("template")
        if template is None or (name.startswith("_") and not is_part(template, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._redirected, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute of the template, unless it is one of Keras or of this class."""
        known = name.startswith("_") or name in self.__dict__ or hasattr(type(self), name)
        if known or "template" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self.template, name, value)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and types of the outputs: the template's."""
        return self.template.compute_output_spec(*args, **kwargs)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes of the outputs: the template's."""
        return self.template.compute_output_shape(*args, **kwargs)

    from_config, rematerialized_call = Own("from_config"), Own("rematerialized_call")

    def compute_mask(self, *args: Any, **kwargs: Any) -> Any:
        """The mask of the outputs: the template's."""
        return self.template.compute_mask(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the template, which it is already."""
        return self.template.build(*args, **kwargs)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Quantizes the template, for which all functions have to be traced anew."""
        self.template.quantize(*args, **kwargs)
        self.train_function = self.test_function = self.predict_function = None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Configure training, for the template too: both share one optimizer.

        Takes the arguments of the template's own `compile()`.
        """
        self._check_scope()
        self.template.compile(*args, **kwargs)
        self._follow_compilation()

    def _follow_compilation(self) -> None:
        """Compiles this model as the template was compiled last: by itself, or by any parallel model of it."""
        if not self.template.compiled or compilation(self.template) is self._compilation:
            return  # a class may write its own `compile()` and keep Keras' out of it
        self._compilation = compilation(self.template)
        arguments = compile_arguments(self.template)
        self._compile_as({**arguments, "optimizer": self.template.optimizer, "auto_scale_loss": False})

    def _own_step(self, step: str) -> Callable[[Any], Any]:
        """The template's own step, or else Keras', in which what it calls on itself comes to this model."""
        return own_step(self._redirected, step)

    # what a step consists of is the template's, its own or Keras'
    compute_loss = Own("compute_loss")
    compute_metrics = Own("compute_metrics")
    stateless_compute_loss = Own("stateless_compute_loss")
    metrics = OwnProperty("metrics")

    @property
    def _beneath(self) -> type:
        """The class that has what runs beneath the template's own verbs."""
        return type(self)

    def overview(self, batch_size: int | None = None) -> Overview:
        """Return a table of what each device stores, receives and sends in a training step.

        Args:
            batch_size: rows of a batch, to see how many each replica gets.

        Returns:
            A tuple with one `DeviceRow` per device, sizes in bytes, which prints as a table.

        Raises:
            ValueError: `batch_size` is no whole number of 1 or more.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32")
        return self._overview(batch_size)


class MultiWorkerModel(ParallelModel, MultiWorkerTraining):
    """A parallel model that several workers train together."""
