"""The verbs of one of several workers."""

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all

from multigpu.base.arguments import by_name
from multigpu.base.refusal import refuse
from multigpu.cluster.callbacks import StopTogether, allowed, listed
from multigpu.cluster.data import are_arrays, brings_own_rows
from multigpu.engines.jax.global_batches import GlobalBatches
from multigpu.engines.jax.training import Training
from multigpu.engines.jax.workers import any_of_all, check_alike, follow_chief, named, order_of_chief
from multigpu.private_api.data_adapters import get_data_adapter
from multigpu.private_api.layers import epoch_of_backup, set_epoch_of_backup
from multigpu.private_api.model_settings import settings_of

DATA = ("x", "y", "sample_weight", "validation_data")
UNLIKE = ("callbacks", "verbose", "return_dict")  # may differ from worker to worker


class MultiWorkerTraining(Training):
    """The verbs of one of several workers. Arrays are the same on all workers; other data are each worker's own.

    On GPUs the processes exchange numbers by NCCL, on CPUs by gloo.
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Call Keras' `fit` on all workers, with the chief's weights."""
        arguments = by_name(super().fit, args, kwargs)
        callbacks = listed(arguments.get("callbacks"))
        with named(self.plan.cluster):
            arguments = self._together(arguments, arguments.get("shuffle", True))
            check_alike([settings_of(self.template)], "layer, optimizer or argument of `compile()`", self.plan)
            begin = keras.callbacks.LambdaCallback(on_train_begin=self._follow_chief)
            own = allowed(callbacks, jax.process_index() == 0)
            arguments["callbacks"] = [*own, begin, StopTogether(callbacks, any_of_all)]
            with order_of_chief():
                return super().fit(**arguments)

    def _follow_chief(self, logs: Any) -> None:
        """Begin with the chief's values, which a backup may have changed, at the epoch at which the backup ended."""
        follow_chief(self.template, self.plan)
        set_epoch_of_backup(self.template, int(broadcast_one_to_all(np.int32(epoch_of_backup(self.template)))))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Call Keras' `evaluate` on all workers."""
        with named(self.plan.cluster):
            return super().evaluate(**self._together(by_name(super().evaluate, args, kwargs)))

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Call Keras' `train_on_batch` with the same batch on all workers."""
        return self._on_all(super().train_on_batch, args, kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Call Keras' `test_on_batch` with the same batch on all workers."""
        return self._on_all(super().test_on_batch, args, kwargs)

    def _on_all(self, verb: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        with named(self.plan.cluster):
            return verb(**self._alike(by_name(verb, args, kwargs)))

    def _alike(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Refuse arguments that differ from the chief's. Of arrays, only the shapes are compared.

        Raises:
            ValueError: a worker has other arguments, or steps would run op by op.
        """
        if self.template.run_eagerly or not self.template.jit_compile:
            expected = "a compiled step, the same program on all workers"
            raise refuse(expected, "run_eagerly=True or jit_compile=False", "Compile the model without it.")
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
        if jax.process_index() > 0:
            arguments["verbose"] = 0  # only the chief prints
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
