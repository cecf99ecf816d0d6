"""Train a parallel model on several workers: together, on global batches, with aggregated logs."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.arguments import by_name
from multigpu.base.refusal import refuse
from multigpu.base.replaced import replaced
from multigpu.cluster.callbacks import allowed, listed
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.batches.fit_arguments import validated_apart
from multigpu.engines.tensorflow.cluster.failures import named
from multigpu.engines.tensorflow.cluster.rendezvous import within_step
from multigpu.engines.tensorflow.cluster.together import Step, Together
from multigpu.engines.tensorflow.multi_worker.callbacks import WorkerSyncCallback
from multigpu.engines.tensorflow.multi_worker.data_adapter import GlobalBatches, global_batches
from multigpu.engines.tensorflow.multi_worker.handshake import broadcast_seed, check_fit_alike
from multigpu.engines.tensorflow.multi_worker.loss_scaling import LossScaling
from multigpu.engines.tensorflow.multi_worker.metrics import aggregate_logs
from multigpu.engines.tensorflow.multi_worker.step import Part, StepConsensus, metrics_kept
from multigpu.engines.tensorflow.parallel.training import Training
from multigpu.private_api.hooks import AggregatesLogs
from multigpu.private_api.layers import compile_arguments, updated_by_keras


class MultiWorkerTraining(AggregatesLogs, Training):
    """The training of several workers: they run `fit` and `evaluate` together, and `predict` each alone."""

    def _begin(self) -> None:
        super()._begin()
        self._cluster: Cluster = self.plan.cluster  # type: ignore[assignment]  # always given here
        self._consensus = StepConsensus(self._cluster)
        self._ended: dict[str, Any] = {}  # iterators, by step function: a callback may evaluate
        self._in_verb = False

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Run Keras' own `fit` on global batches. Only the chief prints and writes files."""
        arguments = validated_apart({"shuffle": True, **by_name(super().fit, args, kwargs)}, large=False)
        with self._verb() as at_end:
            check_fit_alike(self.template, arguments, self._cluster)
            broadcast_seed(self._cluster)
            validation = arguments.get("validation_data")
            if validation is not None:
                arguments["validation_data"] = self._validation(arguments, validation, at_end)
            steps = {"steps": arguments.get("steps_per_epoch")}
            batches = global_batches({**arguments, **steps}, self._cluster, at_end)
            self._check_length(batches, arguments)
            return super().fit(**self._with_batches(arguments, batches))

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Run Keras' own `evaluate` on global batches, with the logs of all workers."""
        arguments = by_name(super().evaluate, args, kwargs)
        if arguments.get("_use_cached_eval_dataset"):  # within `fit`
            return super().evaluate(**arguments)
        with self._verb() as at_end:
            batches = global_batches(arguments, self._cluster, at_end)
            return super().evaluate(**self._with_batches(arguments, batches))

    @functools.wraps(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Run Keras' own `predict` on all given rows, on this worker only."""
        return super().predict(**self._quiet(by_name(super().predict, args, kwargs)))

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step function that ends training and evaluation when the data of all workers have ended."""
        function = super()._around(name, function)

        def until_all_end(iterator: Any) -> Any:
            if iterator is self._ended.get(name):
                raise tf.errors.OutOfRangeError(None, None, "no worker has more data")  # as Keras does to end an epoch
            with within_step(), named(self._cluster):
                outputs = function(iterator)
            if not self._consensus.any_has_more():
                self._ended[name] = iterator
            return outputs

        return function if name == "predict_function" else until_all_end

    @contextlib.contextmanager
    def _of_workers(self, step: str, data: Any) -> Iterator[Any]:
        if step == "predict_step":
            with replaced(self._spread, "step", Step(joint=False)):
                yield data
            return
        part = data if isinstance(data, Part) else Part(data, tf.constant(1), tf.constant(True))  # of `train_on_batch`
        agreed = self._consensus.of_step(part, step)
        workers = Together(self._cluster, step, len(self.plan.replicas), agreed.rows_here, agreed)
        divisor = functools.partial(self._consensus.sum, label=f"{step} divisor")
        own_classes = [metric for metric in self._compiled_metrics() if not updated_by_keras(metric)]
        self._spread.assigned |= {id(variable) for metric in own_classes for variable in metric.variables}
        scaled = LossScaling(agreed, divisor, workers.all_rows, self._has_rows, own_classes).in_use()
        restored, spread = metrics_kept(part, self._metrics_of_step, self._spread.assigned), self._spread
        with scaled, restored, replaced(spread, "step", agreed), replaced(spread, "without_rows", []):
            yield part.data

    def _has_rows(self, output: Any) -> bool:
        """Return whether rows of the step's batch reach an output."""
        return all(output is not other for other in self._spread.without_rows)

    def _metrics_of_step(self) -> list[keras.Metric]:
        """Return all metrics. Those of `compile()` have their variables, but are visible only after the first step."""
        return [*self.metrics, *self._compiled_metrics()]

    def _compiled_metrics(self) -> list[keras.Metric]:
        arguments = compile_arguments(self.template) if self.template.compiled else {}
        given = keras.tree.flatten([arguments.get("metrics"), arguments.get("weighted_metrics")])
        return [metric for metric in given if isinstance(metric, keras.Metric)]

    def aggregated(self, logs: Callable[[], Any]) -> Any:
        """Return the logs of all workers, for a step that all make."""
        if not self._in_verb:
            return logs()
        same, is_idle = self._spread.assigned, self._consensus.is_idle()
        return aggregate_logs(logs, self.metrics, same, is_idle, self._cluster)

    @contextlib.contextmanager
    def _verb(self) -> Iterator[contextlib.ExitStack]:
        """Run a method that all workers call. The stack has the callbacks for its end."""
        with replaced(self, "_in_verb", True), named(self._cluster), contextlib.ExitStack() as at_end:
            yield at_end

    def _validation(self, arguments: dict[str, Any], validation: Any, at_end: contextlib.ExitStack) -> GlobalBatches:
        size = arguments.get("validation_batch_size") or arguments.get("batch_size")
        data = dict(zip(("x", "y", "sample_weight"), keras.utils.unpack_x_y_sample_weight(validation), strict=True))
        given = {**data, "batch_size": size, "steps": arguments.get("validation_steps")}
        return global_batches(given, self._cluster, at_end)

    def _check_length(self, batches: GlobalBatches, arguments: dict[str, Any]) -> None:
        """Raise an error for several steps per execution if the number of steps is unknown."""
        known = batches.num_batches is not None or arguments.get("steps_per_epoch") is not None
        if not known and self.steps_per_execution > 1:
            raise refuse(
                "data of known length where `steps_per_execution` is above 1 and several workers train",
                f"steps_per_execution={self.steps_per_execution} and data of unknown length",
                "Pass `steps_per_epoch`, or set the length with "
                "`dataset.apply(tf.data.experimental.assert_cardinality(n))`.",
            )

    def _with_batches(self, arguments: dict[str, Any], batches: GlobalBatches) -> dict[str, Any]:
        callbacks = listed(arguments.get("callbacks"))
        own = allowed(callbacks, self._cluster.is_chief)
        callbacks = [*own, WorkerSyncCallback(callbacks, self._cluster, self._consensus)]
        in_batches = ("y", "sample_weight", "batch_size", "class_weight")
        others = {name: value for name, value in arguments.items() if name not in in_batches}
        return self._quiet({**others, "x": batches, "callbacks": callbacks})

    def _quiet(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make only the chief print."""
        return arguments if self._cluster.is_chief else {**arguments, "verbose": 0}
