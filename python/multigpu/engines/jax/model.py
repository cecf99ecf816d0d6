"""The parallel model: the template, whose verbs and calls run on all devices."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras

from multigpu.engines.jax.devices import host
from multigpu.engines.jax.layout import Layout, bring_home, place
from multigpu.engines.jax.program import has, trace
from multigpu.engines.jax.rows import divide, send
from multigpu.engines.jax.steps import KINDS, StepFunction
from multigpu.private_api.layers import compilation
from multigpu.private_api.replaced import replaced

VERBS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


class ParallelModel(keras.Model):
    """The template, whose verbs and calls run on all devices. All else that is asked of it, the template answers.

    It is no second model: it has no variables, no layers and no state of training. `isinstance()` and Keras' functions
    that save, copy and export take it for the template, which is what they then work with.
    """

    OWN = frozenset(
        {"template", "layout", "cpu_merge", "stateless_call", "bring_home", "_spread", "_function", "_functions", *VERBS}
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> "ParallelModel":
        return object.__new__(cls)

    def __init__(self, template: keras.Model, layout: Layout, cpu_merge: bool) -> None:
        own = {"template": template, "layout": layout, "cpu_merge": cpu_merge, "_functions": {}}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        return own(self, name) if name in ParallelModel.OWN else getattr(own(self, "template"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.template, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.template, name)

    def __repr__(self) -> str:
        return f"<ParallelModel of {self.template!r} on {self.layout.mesh.size} devices>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the template, with the rows of arrays divided."""
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, keras.KerasTensor) for leaf in leaves):
            return self.template(*args, **kwargs)
        send_one = lambda x: send(x, self.layout, fill=False).value if hasattr(x, "shape") else x  # noqa: E731
        args, kwargs = jax.tree.map(send_one, (args, kwargs))
        return self.template(*args, **kwargs)

    def stateless_call(self, trainable: Any, non_trainable: Any, *args: Any, **kwargs: Any) -> Any:
        """The template's, with rows divided: for loops of one's own, inside of `jax.jit`."""
        call = functools.partial(self.template.stateless_call, trainable, non_trainable)
        tracers = [leaf for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.core.Tracer)]
        if tracers and not has(trace(functools.partial(call, **kwargs), *args)[0], "sort"):  # see `program.py`
            args = jax.tree.map(lambda x: divide(x, self.layout), args)
        return call(*args, **kwargs)

    def bring_home(self) -> None:
        """Moves all variables back to one device; the next verb spreads them again."""
        bring_home(variables_of(self.template))

    @contextlib.contextmanager
    def _spread(self) -> Iterator[None]:
        """While it lasts, the template's steps run on all devices."""
        check_no_distribution()
        template, layout = self.template, self.layout
        names = [f"{kind}_function" for kind in KINDS]
        before, functions = compilation(template), {name: getattr(template, name) for name in names}
        with contextlib.ExitStack() as stack:
            stack.enter_context(jax.default_device(host()))  # batches and new variables wait there, not on a GPU
            for kind in KINDS:
                stack.enter_context(replaced(template, f"make_{kind}_function", functools.partial(self._function, kind)))
            for name in names:
                setattr(template, name, None)
            if not layout.on_host:
                place(template.variables, layout)
            try:
                yield
            finally:
                for name in names:
                    setattr(template, name, functions[name] if compilation(template) is before else None)
                if layout.on_host:  # what rests in pinned memory cannot be computed with outside of a step
                    bring_home(variables_of(template))

    def _function(self, kind: str, force: bool = False) -> None:
        """Gives the template the function of a kind of steps, a new one if it was compiled anew."""
        compiled, function = self._functions.get(kind, (None, None))
        if function is None or force or compiled is not compilation(self.template):
            function = StepFunction(self.template, kind, self.layout, self.cpu_merge)
            self._functions[kind] = compilation(self.template), function
        setattr(self.template, f"{kind}_function", function)


def _verb(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(keras.Model, name))
    def verb(self: ParallelModel, *args: Any, **kwargs: Any) -> Any:
        with self._spread():
            return getattr(self.template, name)(*args, **kwargs)

    return verb


for _name in VERBS:
    setattr(ParallelModel, _name, _verb(_name))


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """All variables that a model trains with."""
    optimizer = getattr(model, "optimizer", None)
    return [*model.variables, *(optimizer.variables if optimizer is not None else []), *model.metrics_variables]


def check_no_distribution() -> None:
    """Refuses a distribution of Keras, which would divide what is divided already."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise ValueError(
            "Expected no `keras.distribution` in force: `multi_gpu_model()` divides weights and batches itself. "
            f"Received: {type(distribution).__name__}. Take it back with `keras.distribution.set_distribution(None)`."
        )
