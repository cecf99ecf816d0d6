"""The parallel model: called, trained and asked like the template, and spread over devices."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from multigpu.arguments import check_whole_number
from multigpu.batches.fit_arguments import call_fit, call_with_batches
from multigpu.batches.prefetch import SlicedBatch
from multigpu.devices.plan import MOST_ROWS, Plan
from multigpu.parallel.batch_norm import synchronized_layers
from multigpu.parallel.call import DataParallelCall
from multigpu.parallel.distribute_strategy import USED, check_no_strategy
from multigpu.parallel.input_prefetch import InputPrefetch, is_of_keras_loop
from multigpu.parallel.optimizer_scalars import scalars_read_once
from multigpu.parallel.overrides import Own, OwnProperty, Shared, parallel_parts
from multigpu.parallel.redirected_template import own_step, redirected_template
from multigpu.parallel.step_scope import colocate_ops, eager_variables, on_host
from multigpu.parallel.template_answers import TemplateAnswers
from multigpu.parallel.verb_errors import guarded
from multigpu.private_api.callers import is_exported
from multigpu.private_api.hooks import AddsNoMask
from multigpu.private_api.layers import compilation, compile_arguments, show_input
from multigpu.private_api.replaced import replaced
from multigpu.saving.template_facade import TemplateFacade, is_part
from multigpu.weights.optimizer_slots import build_slots
from multigpu.weights.overview import Overview, overview
from multigpu.weights.place_locate import place


class ParallelModel(TemplateAnswers, TemplateFacade, AddsNoMask, keras.Model):
    """A Keras model whose every call is spread over several devices. Made by `multi_gpu_model()`.

    It owns nothing: weights, layers and optimizer are the template's, so there is nothing to synchronise. What is
    asked of it and not answered here is answered by the template.

    Attributes:
        template: the model that owns the weights.
        plan: the devices at work.
    """

    optimizer, run_eagerly, steps_per_execution, supports_masking = Shared(), Shared(), Shared(), Shared()
    compiled = Shared()
    stop_training = False  # by Keras' loop, which sets it

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
        self._spread = DataParallelCall(template, plan)
        self._num_calls = 0
        self._steps_that_call: set[str] = set()
        self._functions: dict[str, Any] = {}  # of steps, as made last, by name
        self._traced_for: dict[str, list[int]] = {}  # synchronized layers, by the same names
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

    # One call -------------------------------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the template on one slice of the batch per device and merges what it gives."""
        if is_exported():  # a file knows no devices
            return self.template(*args, **kwargs)
        check_no_strategy(USED)
        merged = self._spread(args, kwargs, self.run_eagerly)
        for loss in merged.losses:
            self.add_loss(loss)
        return merged.outputs

    def _call_for_template(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the template's own code, or a step, makes of the model."""
        check_no_strategy(USED)
        self._num_calls += 1
        merged = self._spread(args, kwargs, self.run_eagerly)
        for loss in merged.losses:
            keras.Layer.add_loss(self.template, loss)  # functional models refuse their own
        return merged.outputs

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and types of the outputs: the template's."""
        return self.template.compute_output_spec(*args, **kwargs)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes of the outputs: the template's."""
        return self.template.compute_output_shape(*args, **kwargs)

    def stateless_call(self, *args: Any, **kwargs: Any) -> Any:
        """The template's, with the values that are given for its variables, on one device."""
        return self.template.stateless_call(*args, **kwargs)

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

    # Training -------------------------------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Configures training, for the template too: both share one optimizer object.

        Takes the arguments of the template's own `compile()`. With `jit_compile`, XLA compiles each replica, never the
        step around them, which would put all replicas on one device.
        """
        check_no_strategy(USED)
        self.template.compile(*args, **kwargs)
        self._follow_compilation()

    def _follow_compilation(self) -> None:
        """Compiles this model as the template was compiled last: by itself, or by any parallel model of it."""
        if not self.template.compiled or compilation(self.template) is self._compilation:
            return  # a class may write its own `compile()` and keep Keras' out of it
        self._compilation = compilation(self.template)
        arguments = compile_arguments(self.template)
        arguments.update(optimizer=self.template.optimizer, jit_compile=False, auto_scale_loss=False)
        super().compile(**arguments)
        metrics = [leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, keras.Metric)]
        place((v, "CPU:0") for metric in [*self.metrics, *metrics] for v in metric.variables)  # single numbers, mostly
        self.template.jit_compile = False  # alone it would be one XLA program, which cannot read several devices

    def make_train_function(self, force: bool = False) -> Any:
        """Builds the optimizer before the step is traced: its slots beside the weights, its loss scale in the trace."""
        if self.optimizer is not None:
            build_slots(self.optimizer, self.trainable_variables)
        return self._made("train_function", super().make_train_function, force)

    def make_test_function(self, force: bool = False) -> Any:
        """Keras' function of steps of `evaluate`."""
        return self._made("test_function", super().make_test_function, force)

    def make_predict_function(self, force: bool = False) -> Any:
        """Keras' function of steps of `predict`."""
        return self._made("predict_function", super().make_predict_function, force)

    def _made(self, name: str, make: Callable[[bool], Any], force: bool) -> Any:
        self._follow_compilation()
        before, synchronized = getattr(self, name), synchronized_layers(self.template)
        make(force or self._traced_for.get(name, synchronized) != synchronized)
        self._traced_for[name] = synchronized
        if getattr(self, name) is not before:
            setattr(self, name, self._around(name, getattr(self, name)))
            self._functions[name] = getattr(self, name)
        return getattr(self, name)

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in place of one of Keras' functions of steps."""
        return on_host(function)

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy | InputPrefetch:
        """The template's, which is TensorFlow's default; for GPUs with batches whose slices are sent ahead."""
        strategy = self.template.distribute_strategy
        takes_slices = self.plan.sends_ahead and is_of_keras_loop(self, self._functions)
        return InputPrefetch(strategy, self.plan.devices) if takes_slices else strategy

    @guarded
    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Keras' own `fit`. Of large arrays that Keras would copy, rows are cut and cast when their turn comes."""
        return call_fit(super().fit, by_name(super().fit, args, kwargs))

    @guarded
    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Keras' own `evaluate`, with large arrays as in `fit`."""
        return call_with_batches(super().evaluate, by_name(super().evaluate, args, kwargs))

    @guarded
    @functools.wraps(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Keras' own `predict`, with large arrays as in `fit`."""
        return call_with_batches(super().predict, by_name(super().predict, args, kwargs))

    train_on_batch = guarded(keras.Model.train_on_batch)
    test_on_batch = guarded(keras.Model.test_on_batch)
    predict_on_batch = guarded(keras.Model.predict_on_batch)

    def train_step(self, data: Any) -> Any:
        """One step of `fit`, with loss and metrics on the merge device."""
        return self._step("train_step", data)

    def test_step(self, data: Any) -> Any:
        """One step of `evaluate`, with loss and metrics on the merge device."""
        return self._step("test_step", data)

    def predict_step(self, data: Any) -> Any:
        """One step of `predict`."""
        return self._step("predict_step", data)

    def _step(self, step: str, data: Any) -> Any:
        device = self.plan.merge_device
        if isinstance(data, SlicedBatch):
            with replaced(self._spread, "slices", data.by_input()):
                return self._step(step, data.batch)
        with colocate_ops(device), eager_variables("CPU:0"), scalars_read_once(getattr(self, "optimizer", None)):
            return self._make_step(step, data)

    def _make_step(self, step: str, data: Any) -> Any:
        """A step of the template's own, or else Keras', on the template, whose calls of itself are spread."""
        before = self._num_calls
        result = own_step(self._redirected, step)(data)
        if self._num_calls > before:
            self._steps_that_call.add(step)
        elif step not in self._steps_that_call:  # or else it may be a function that was traced before
            raise ValueError(
                f"Expected `{step}` of {type(self.template).__name__} to call the model itself, as "
                "`self(x, training=True)`: that is the call that is spread over the devices. Received: one that only "
                f"calls parts of it. {parallel_parts(self.template)}"
            )
        return result

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
        """What each device holds, and what reaches and leaves it in a training step.

        Args:
            batch_size: rows of a batch, to see how many each replica gets.

        Returns:
            A tuple with one `DeviceRow` per device, sizes in bytes, which prints as a table.

        Raises:
            ValueError: `batch_size` is no whole number of 1 or more.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32")
        return overview(self.template, self.plan, batch_size, self._spread.types)


def by_name(verb: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of one of Keras' verbs, by name."""
    try:
        bound = inspect.signature(verb).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{verb.__name__}() {error}") from None  # as Python says it of a call
    return {**bound.pop("kwargs", {}), **bound}
