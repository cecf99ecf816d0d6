"""Call and train a template on TensorFlow: each call is spread over the devices."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import replaced
from multigpu.base.shared import Shared
from multigpu.engines.tensorflow.batches.fit_arguments import arguments_with_batches, fit_arguments
from multigpu.engines.tensorflow.batches.prefetch import SlicedBatch
from multigpu.engines.tensorflow.parallel.batch_statistics import of_slices, synchronized_layers
from multigpu.engines.tensorflow.parallel.call import DataParallelCall
from multigpu.engines.tensorflow.parallel.distribute_strategy import USED, check_no_strategy
from multigpu.engines.tensorflow.parallel.input_prefetch import InputPrefetch, is_of_keras_loop
from multigpu.engines.tensorflow.parallel.optimizer_update import prepared_updates
from multigpu.engines.tensorflow.parallel.step_scope import colocate_ops, eager_variables, on_host
from multigpu.engines.tensorflow.parallel.verb_errors import guarded
from multigpu.engines.tensorflow.private_api.trackable import TrackedAsTemplate
from multigpu.engines.tensorflow.weights.overview import Overview, overview
from multigpu.engines.tensorflow.weights.place_locate import build_slots, place
from multigpu.plan.plan import Plan
from multigpu.private_api.callers import EXPORTERS, called_by
from multigpu.private_api.class_code import defined_by_class, parallel_parts
from multigpu.private_api.layers import optimizers_of, sublayers


class Training(TrackedAsTemplate, keras.Model):
    """The calls, steps and methods of a parallel model. Calls of the template's own code on itself come here, too.

    Attributes:
        template: the model that owns the weights.
        plan: the devices at work.
    """

    template: keras.Model
    plan: Plan
    stop_training = Shared()  # by Keras' loop, by callbacks, and by code that has the template
    _follow_compilation: Callable[[], None]
    _own_step: Callable[[str], Callable[[Any], Any]]

    def _begin(self) -> None:
        """Prepare to spread calls of the template."""
        self.supports_jit = False  # a plain model with it as a part would become one XLA program, on one device
        self._spread = DataParallelCall(self.template, self.plan)
        self._num_calls = 0
        self._steps_that_call: set[str] = set()
        self._not_built: weakref.WeakSet[keras.Optimizer] = weakref.WeakSet()  # by a first trace of an own step
        self._functions: dict[str, Any] = {}  # step functions, as made last, by name
        self._traced_for: dict[str, list[object]] = {}  # what the layers do in their traces, by the same names

    # One call -------------------------------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the template on one slice of the batch per device, and merge the results."""
        if not tf.executing_eagerly() and called_by(EXPORTERS):  # a file has no devices
            return self.template(*args, **kwargs)
        self._check_scope()
        merged = self._spread(args, kwargs, self.run_eagerly)
        for loss in merged.losses:
            self.add_loss(loss)
        return merged.outputs

    def _call_for_template(self, *args: Any, **kwargs: Any) -> Any:
        """Make a call of the model for the template's own code, or for a step."""
        self._check_scope()
        self._num_calls += 1
        merged = self._spread(args, kwargs, self.run_eagerly)
        for loss in merged.losses:
            keras.Layer.add_loss(self.template, loss)  # functional models do not accept their own
        return merged.outputs

    stateless_call = Shared()  # with the given values for the template's variables, on one device

    def _check_scope(self) -> None:
        check_no_strategy(USED)

    # Training -------------------------------------------------------------------------------------------------------

    def _compile_as(self, arguments: dict[str, Any]) -> None:
        """Compile this model. XLA compiles each replica: a program of the whole step would run on one device."""
        super().compile(**{**arguments, "jit_compile": False})
        metrics = [leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, keras.Metric)]
        place((v, "CPU:0") for metric in [*self.metrics, *metrics] for v in metric.variables)  # mostly single numbers
        self.template.jit_compile = False  # it would become one XLA program, which cannot read several devices

    def make_train_function(self, force: bool = False) -> Any:
        """Build the optimizer before callbacks begin, which may restore it. An own step decides what it trains."""
        own_step = defined_by_class(type(self.template), "train_step")
        all_slots = own_step is None or self.plan.cluster  # workers send all
        if isinstance(self.optimizer, keras.Optimizer) and all_slots:
            build_slots(self.optimizer, self.trainable_variables)
        return self._make("train_function", force)

    def _make(self, name: str, force: bool = False) -> Any:
        """Make Keras' function of steps, again if other layers are synchronized or quantized than in its trace."""
        self._follow_compilation()
        quantized = [layer.quantization_mode for layer in sublayers(self.template)]
        before, now = getattr(self, name), [*synchronized_layers(self.template), *quantized]
        getattr(super(), f"make_{name}")(force or self._traced_for.get(name, now) != now)
        self._traced_for[name] = now
        if getattr(self, name) is not before:
            setattr(self, name, self._around(name, getattr(self, name)))
            self._functions[name] = getattr(self, name)
        return getattr(self, name)

    make_test_function = functools.partialmethod(_make, "test_function")
    make_predict_function = functools.partialmethod(_make, "predict_function")

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement for one of Keras' step functions."""
        return on_host(function, training=name == "train_function")

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy | InputPrefetch:
        """The template's strategy, TensorFlow's default. On GPUs its batches have slices that are sent ahead."""
        strategy = self.template.distribute_strategy
        takes_slices = self.plan.sends_ahead and is_of_keras_loop(self, self._functions)
        return InputPrefetch(strategy, self.plan.devices) if takes_slices else strategy

    # rows of large arrays that Keras would copy are cut and cast batch by batch
    fit = guarded(keras.Model.fit, fit_arguments)
    evaluate = guarded(keras.Model.evaluate, arguments_with_batches)
    predict = guarded(keras.Model.predict, arguments_with_batches)
    train_on_batch = guarded(keras.Model.train_on_batch)
    test_on_batch = guarded(keras.Model.test_on_batch)
    predict_on_batch = guarded(keras.Model.predict_on_batch)

    def _step(self, step: str, data: Any) -> Any:
        """Run a step of the template's own, or Keras', on the template. Its calls of itself are spread.

        Loss and metrics are computed on the merge device.
        """
        if isinstance(data, SlicedBatch):
            with replaced(self._spread, "slices", data.by_input()):
                return self._step(step, data.batch)
        if unbuilt := self._unbuilt(step):  # code that reads the optimizer has to find it as from the second step on
            with replaced(self, "_unbuilt", lambda step: []):
                tf.function(functools.partial(self._step, step), autograph=False).get_concrete_function(data)
            self._not_built.update(unbuilt)
        before, updates = self._num_calls, prepared_updates(optimizers_of(self.template))
        on_device, own_variables = colocate_ops(self.plan.merge_device), eager_variables("CPU:0")
        with on_device, own_variables, updates, self._of_workers(step, data) as own:
            result = self._own_step(step)(own)
        if self._num_calls > before:
            self._steps_that_call.add(step)
        elif step not in self._steps_that_call:  # otherwise it may be a function that was traced before
            raise refuse(
                f"`{step}` of {type(self.template).__name__} to call the model itself, as `self(x, training=True)`: "
                "that is the call that is spread over the devices",
                "one that only calls parts of it, or `stateless_call()`, which runs on one device",
                f"{parallel_parts(self.template)}",
            )
        return result

    def _unbuilt(self, step: str) -> list[keras.Optimizer]:
        """Return the optimizers that a trace of the template's own step may build. Keras traces it again if it does."""
        if step != "train_step" or tf.executing_eagerly() or not defined_by_class(type(self.template), step):
            return []
        optimizers = (each for each in optimizers_of(self.template) if isinstance(each, keras.Optimizer))
        return [each for each in optimizers if not each.built and each not in self._not_built]

    def _of_workers(self, step: str, data: Any) -> contextlib.AbstractContextManager[Any]:
        """Make a step with data, which it returns, inside a `with` block. Several workers make it together."""
        return contextlib.nullcontext(data)

    train_step = functools.partialmethod(_step, "train_step")
    test_step = functools.partialmethod(_step, "test_step")
    predict_step = functools.partialmethod(_step, "predict_step")

    # Answers --------------------------------------------------------------------------------------------------------

    def _statistics_of_slices(self) -> Sequence[keras.Layer]:
        return of_slices(self.template)

    def _overview(self, batch_size: int | None) -> Overview:
        return overview(self.template, self.plan, batch_size, self._spread.types)
