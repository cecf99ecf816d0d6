"""Call and train a template on JAX: Keras' loops run on the template, and its steps on all devices."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax
import keras

from multigpu.base.replaced import replaced, set_to, wrapped
from multigpu.base.shared import Shared
from multigpu.engines.jax.devices import host
from multigpu.engines.jax.layout import gathered, on_mesh, without_context_mesh
from multigpu.engines.jax.moves import has, needs_whole_weights
from multigpu.engines.jax.overview import overview
from multigpu.engines.jax.placement import all_variables, bring_plain_home, layout_of, place, send_home, settle
from multigpu.engines.jax.private_api.batches import batches_on_host
from multigpu.engines.jax.private_api.divided_weights import divided_weights, forget_state, has_value, is_traced
from multigpu.engines.jax.private_api.losses import fresh_losses
from multigpu.engines.jax.program import run, trace
from multigpu.engines.jax.refused import check_no_distribution, named_op_by_op
from multigpu.engines.jax.rows import divide, send
from multigpu.engines.jax.steps import KINDS, StepFunction
from multigpu.plan.overview import Overview
from multigpu.plan.plan import Plan
from multigpu.private_api.class_code import LOOPS
from multigpu.private_api.layers import compilation
from multigpu.private_api.masks import mask_of, with_mask


def _function_of_loop(kind: str) -> property:
    """Return the attribute for a step function, which loops set on the template."""

    def set_function(self: "Training", function: Any) -> None:
        self.__dict__.setdefault("_functions", {})[kind] = function  # Keras sets it before there is a template

    return property(lambda self: vars(self).get("_functions", {}).get(kind), set_function)


# the parallel models whose loops run now, by the ids of their templates
_spread_out: ContextVar[Mapping[int, "Training"]] = ContextVar("_spread_out", default=MappingProxyType({}))


class Training(keras.Model):
    """The calls, steps and methods of a parallel model.

    XLA gives every step the meaning that it has on one device. So the template's own code runs on the template itself:
    a method is Keras' method on the template, whose step functions are replaced meanwhile.

    Attributes:
        template: the model that owns the weights.
        plan: the devices at work.
    """

    template: keras.Model
    plan: Plan
    _follow_compilation: Callable[[], None]

    def _begin(self) -> None:
        """Prepare to make step functions."""
        self._functions: dict[str, Any] = {}  # that loops call, by kind: a user's own, or one of these
        self._steps: dict[str, StepFunction] = {}

    # One call -------------------------------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the template with the rows of arrays divided."""
        if is_traced():
            return self.template(*args, **kwargs)  # within a user's function, which is divided as a whole
        layout = replace(layout_of(self.plan).alone, on_host=False)
        place(self.template.variables, layout)

        def sent(x: Any) -> Any:
            if not hasattr(x, "shape"):
                return x
            mask, x = mask_of(x), send(x, layout, layout.rows).value
            return x if mask is None else with_mask(x, sent(mask))

        args, kwargs = jax.tree.map(sent, (args, kwargs))
        with without_context_mesh(), named_op_by_op():
            outputs = self.template(*args, **kwargs)
        settle(self.template.variables, self.plan)
        return outputs

    _call_for_template = call

    @divided_weights()
    @fresh_losses()
    def stateless_call(self, trainable: Any, non_trainable: Any, *args: Any, **kwargs: Any) -> Any:
        """Make the template's stateless call with rows divided: for custom loops inside of `jax.jit`."""
        weights, layout = (trainable, non_trainable), layout_of(self.plan)
        given, structure = jax.tree.flatten((args, kwargs))
        arrays = {place: (each, mask_of(each)) for place, each in enumerate(given) if hasattr(each, "shape")}

        def call(trainable: Any, non_trainable: Any, arrays: Any) -> Any:
            masked = {place: with_mask(*each) for place, each in arrays.items()}
            args, kwargs = structure.unflatten([masked.get(place, each) for place, each in enumerate(given)])
            return self.template.stateless_call(trainable, non_trainable, *args, **kwargs)

        if not is_traced() or jax.config.jax_disable_jit:
            return call(*weights, arrays)
        program, results = trace(layout.mesh, call, *weights, arrays, has_gradients=False)
        if not has(program, "fft", "sort"):  # their gradients are not edited: see `divisible()`
            arrays = jax.tree.map(lambda x: divide(x, layout), arrays)
        if needs_whole_weights(program, len(jax.tree.leaves(weights))):
            weights = gathered(weights, layout)
        return run(program, results, *weights, arrays)

    def _check_scope(self) -> None:
        check_no_distribution()

    # Training -------------------------------------------------------------------------------------------------------

    def _compile_as(self, arguments: dict[str, Any]) -> None:
        """Compile this model, so that Keras' properties are correct."""
        super().compile(**arguments)

    train_step, test_step, predict_step, stop_training = Shared(), Shared(), Shared(), Shared()

    train_function, test_function, predict_function = map(_function_of_loop, KINDS)

    def _make(self, kind: str, force: bool = False, on: keras.Model | None = None) -> None:
        """Set the step function of a kind, which runs on all devices, for a custom loop or on the template."""
        self._follow_compilation()
        model = self if on is None else on
        if force or getattr(model, f"{kind}_function") is None:
            to_host = self.plan.merge_device.startswith("CPU")
            self._steps[kind] = StepFunction(self.template, kind, layout_of(self.plan), to_host)
            setattr(model, f"{kind}_function", self._steps[kind])

    make_train_function = functools.partialmethod(_make, "train")
    make_test_function = functools.partialmethod(_make, "test")
    make_predict_function = functools.partialmethod(_make, "predict")

    @contextlib.contextmanager
    def _spread(self) -> Iterator[None]:
        """Run the template's steps on all devices inside a `with` block, then restore its functions."""
        self._check_scope()
        template, compiled = self.template, compilation(self.template)
        before = {f"{kind}_function": getattr(template, f"{kind}_function") for kind in KINDS}
        with contextlib.ExitStack() as stack:
            stack.enter_context(jax.default_device(host()))  # new variables wait there, not on a GPU
            stack.enter_context(without_context_mesh())
            stack.enter_context(batches_on_host())  # until the step sends each row to its device
            stack.enter_context(set_to(_spread_out, {**_spread_out.get(), id(template): self}))
            stack.enter_context(replaced(template, "jax_state_sync", self._sync))
            self._follow_compilation()
            for kind in KINDS:
                setattr(template, f"{kind}_function", self._functions.get(kind))
            if not self.plan.cpu_relocation:
                place(template.variables, layout_of(self.plan).alone)
            try:
                yield
            except BaseException:
                for step in sorted(self._steps.values(), key=lambda step: step.turn, reverse=True):
                    step.restore()
                forget_state(template)
                raise
            finally:
                for step in self._steps.values():
                    step.forget()
                self._functions = {kind: getattr(template, f"{kind}_function") for kind in KINDS}
                for name, function in before.items():
                    setattr(template, name, function if compilation(template) is compiled else None)
                self._settle()

    def _sync(self) -> None:
        """Give the template's variables the values after the last step, on devices of this worker, for callbacks."""
        with jax.ensure_compile_time_eval():  # in a user's own traced function, too
            type(self.template).jax_state_sync(self.template)
            for variable in filter(has_value, all_variables(self.template)):
                if not variable.value.is_fully_addressable:
                    variable.assign(on_mesh(variable.value, layout_of(self.plan).own))
            self._settle()

    def _settle(self) -> None:
        if self.plan.cpu_relocation:  # arrays in pinned memory cannot be used in computations outside of a step
            send_home(list(filter(has_value, all_variables(self.template))))

    # Answers --------------------------------------------------------------------------------------------------------

    def _statistics_of_slices(self) -> Sequence[keras.Layer]:
        return []  # all use the global batch

    def _overview(self, batch_size: int | None) -> Overview:
        return overview(self.template, self.plan, batch_size)


def _on_all_devices(verb: Callable[..., Any], self: Training, /, *args: Any, **kwargs: Any) -> Any:
    with self._spread():
        return verb(self.template, *args, **kwargs)


def _of_plain_or_template(kind: str, make: Callable[..., Any], self: keras.Model, force: bool = False) -> Any:
    parallel = _spread_out.get().get(id(self))
    if parallel is not None:
        return parallel._make(kind, force, on=self)
    bring_plain_home(self)
    return make(self, force)


for _name in LOOPS:
    setattr(Training, _name, wrapped(getattr(keras.Model, _name), _on_all_devices))

for _kind in KINDS:
    _made = wrapped(getattr(keras.Model, f"make_{_kind}_function"), functools.partial(_of_plain_or_template, _kind))
    setattr(keras.Model, f"make_{_kind}_function", _made)
