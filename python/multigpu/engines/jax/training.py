"""Call and train a template on JAX: Keras' loops run on the template, and its steps on all devices."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import keras

from multigpu.base.replaced import replaced
from multigpu.base.shared import Shared
from multigpu.engines.jax.devices import host
from multigpu.engines.jax.layout import gathered, without_context_mesh
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

    def _begin(self) -> None:
        """Prepare to make step functions."""
        self._made: dict[str, tuple[object, StepFunction]] = {}  # by kind, with its compilation

    # One call -------------------------------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the template with the rows of arrays divided."""
        if is_traced():
            return self.template(*args, **kwargs)  # within a user's function, which is divided as a whole
        layout = replace(layout_of(self.plan).alone, on_host=False)
        place(self.template.variables, layout)
        args, kwargs = jax.tree.map(
            lambda x: send(x, layout, layout.rows).value if hasattr(x, "shape") else x, (args, kwargs)
        )
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
        arrays = {place: each for place, each in enumerate(given) if hasattr(each, "shape")}

        def call(trainable: Any, non_trainable: Any, arrays: Any) -> Any:
            args, kwargs = structure.unflatten([arrays.get(place, each) for place, each in enumerate(given)])
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

    def _make(self, kind: str, force: bool = False, on: keras.Model | None = None) -> None:
        """Set the step function of a kind, which runs on all devices, for a custom loop or on the template."""
        setattr(self if on is None else on, f"{kind}_function", self._function(kind, force))

    make_train_function = functools.partialmethod(_make, "train")
    make_test_function = functools.partialmethod(_make, "test")
    make_predict_function = functools.partialmethod(_make, "predict")

    def _function(self, kind: str, force: bool = False) -> StepFunction:
        """Return the step function of a kind. It is a new one if the template was compiled again."""
        compiled, function = self._made.get(kind, (None, None))
        if function is None or force or compiled is not compilation(self.template):
            to_host = self.plan.merge_device.startswith("CPU")
            function = StepFunction(self.template, kind, layout_of(self.plan), to_host)
            self._made[kind] = compilation(self.template), function
        return function

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
            for kind in KINDS:
                make = functools.partial(self._make, kind, on=template)
                stack.enter_context(replaced(template, f"make_{kind}_function", make))
            if not self.plan.cpu_relocation:
                place(template.variables, layout_of(self.plan).alone)
            try:
                yield
            except BaseException:
                for _, step in sorted(self._made.values(), key=lambda made: made[1].turn, reverse=True):
                    step.restore()
                forget_state(template)
                raise
            finally:
                for _, step in self._made.values():
                    step.forget()
                for name, function in before.items():
                    setattr(template, name, function if compilation(template) is compiled else None)
                # arrays in pinned memory cannot be used in computations outside of a step
                if self.plan.cpu_relocation and all(map(has_value, all_variables(template))):
                    send_home(all_variables(template))

    # Answers --------------------------------------------------------------------------------------------------------

    def _statistics_of_slices(self) -> Sequence[keras.Layer]:
        return []  # all use the global batch

    def _overview(self, batch_size: int | None) -> Overview:
        return overview(self.template, self.plan, batch_size)


def _verb(name: str) -> Callable[..., Any]:
    of_keras = getattr(keras.Model, name)

    @functools.wraps(of_keras)
    def verb(self: Training, *args: Any, **kwargs: Any) -> Any:
        with self._spread():
            return of_keras(self.template, *args, **kwargs)

    return verb


for _name in LOOPS:
    setattr(Training, _name, _verb(_name))


def _of_plain_models(name: str) -> Callable[..., None]:
    of_keras = getattr(keras.Model, name)

    @functools.wraps(of_keras)
    def make(self: keras.Model, *args: Any, **kwargs: Any) -> None:
        bring_plain_home(self)
        of_keras(self, *args, **kwargs)

    return make


for _kind in KINDS:
    setattr(keras.Model, f"make_{_kind}_function", _of_plain_models(f"make_{_kind}_function"))
