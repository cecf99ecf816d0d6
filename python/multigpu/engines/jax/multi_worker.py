"""The verbs of one of several workers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from multigpu.base.arguments import by_name
from multigpu.cluster.callbacks import StopTogether, allowed
from multigpu.cluster.data import are_arrays, brings_own_rows
from multigpu.engines.jax.global_batches import GlobalBatches
from multigpu.engines.jax.placement import on_one_device
from multigpu.engines.jax.training import Training
from multigpu.engines.jax.workers import any_of_all, check_alike, follow_chief, named, order_of_chief
from multigpu.private_api.data_adapters import get_data_adapter

DATA = ("x", "y", "sample_weight", "validation_data")
UNLIKE = ("callbacks", "verbose", "return_dict")  # may differ from worker to worker


class MultiWorkerTraining(Training):
    """The verbs of one of several workers. Arrays are the same on all workers; other data are each worker's own.

    On GPUs the processes exchange numbers by NCCL, on CPUs by gloo.
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Call Keras' `fit` on all workers, with the chief's weights."""
        arguments = by_name(super().fit, args, kwargs)
        given = arguments.get("callbacks")
        listed = list(given) if isinstance(given, list | tuple) else [given] if given else []
        with named(self.plan.cluster):
            arguments = self._together(arguments, arguments.get("shuffle", True))
            arguments["callbacks"] = [*allowed(listed, jax.process_index() == 0), StopTogether(listed, any_of_all)]
            follow_chief(self.template, self.plan)
            with order_of_chief():
                return super().fit(**arguments)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Call Keras' `evaluate` on all workers."""
        arguments = by_name(super().evaluate, args, kwargs)
        with named(self.plan.cluster):
            return super().evaluate(**self._together(arguments))

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the template on this worker alone."""
        return self._alone(type(self.template).__call__, *args, **kwargs)

    _call_for_template = call

    def _alone(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a verb of the template on this worker alone."""
        with on_one_device(self.template, self.plan):
            return verb(self.template, *args, **kwargs)

    def _alike(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Refuse arguments that differ from the chief's. Of arrays, only the shapes are compared."""
        told = [
            (name, [np.shape(leaf) for leaf in keras.tree.flatten(value)] if are_arrays(value) else "own")
            if name in DATA
            else (name, str(value))
            for name, value in arguments.items()
        ]
        check_alike([each for each in told if each[0] not in UNLIKE], "arguments", self.plan)
        return arguments

    def _together(self, arguments: dict[str, Any], shuffle: bool = False) -> dict[str, Any]:
        """Return the arguments, with global batches instead of datasets and generators."""
        arguments = dict(self._alike(arguments))
        steps = arguments.get("steps_per_epoch") or arguments.get("steps")
        for name, number in (("x", steps), ("validation_data", arguments.get("validation_steps"))):
            data = arguments.get(name)
            if not are_arrays(data):
                of_x = ("y", "sample_weight", "class_weight") if name == "x" else ()
                more = {each: arguments.pop(each, None) for each in of_x}
                mixed = bool(of_x) and shuffle and isinstance(data, keras.utils.PyDataset)
                given = get_data_adapter(data, steps_per_epoch=number, shuffle=mixed, **more)
                arguments[name] = GlobalBatches(given, self.plan, brings_own_rows(data))
        return arguments


def _of_all(name: str) -> Callable[..., Any]:
    """Return a verb that takes the same batch on all workers."""
    verb = getattr(Training, name)

    @functools.wraps(verb)
    def checked(self: MultiWorkerTraining, *args: Any, **kwargs: Any) -> Any:
        with named(self.plan.cluster):
            return verb(self, **self._alike(by_name(verb.__get__(self), args, kwargs)))

    return checked


for _name in ("train_on_batch", "test_on_batch"):
    setattr(MultiWorkerTraining, _name, _of_all(_name))
for _each in (keras.Model.predict, keras.Model.predict_on_batch):
    setattr(MultiWorkerTraining, _each.__name__, functools.partialmethod(MultiWorkerTraining._alone, _each))
