"""Arguments of `compile()` as in Keras 2, where one optimizer may train several models, and one loss all outputs."""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.refusal import refuse
from multigpu.base.replaced import wrapped
from multigpu.keras2.freezing import settle
from multigpu.keras2.optimizers import another
from multigpu.keras2.outputs import by_output, num_outputs
from multigpu.keras2.parallel_layers import template_of

LEFT = ("sample_weight_mode", "target_tensors")  # Keras 3 detects the mode, and needs no targets
ORDER = ("optimizer", "loss", "metrics", "loss_weights", *LEFT[:1], "weighted_metrics", *LEFT[1:])

_models: weakref.WeakKeyDictionary[keras.Optimizer, weakref.ref] = weakref.WeakKeyDictionary()  # that they train


def restore() -> None:
    """Make `compile()` accept these arguments."""
    trainer: Any = next(each for each in keras.Model.__mro__ if "compile" in vars(each))
    trainer.compile = wrapped(
        trainer.compile, _with_old_arguments
    )  # Keras looks here to see whether a class has its own
    keras.Model.metrics_names = property(wrapped(keras.Model.metrics_names.fget, _metrics_names))


def _with_old_arguments(compile_model: Callable, self: keras.Model, /, *args: Any, **kwargs: Any) -> None:
    named = {**dict(zip(ORDER, args, strict=False)), **kwargs}
    if named.get("target_tensors") is not None:
        raise refuse(
            "the targets in `fit()`",
            "`target_tensors` of `compile()`, which Keras 3 does not have",
            "Use `model.fit(x, y)`, or a `tf.data.Dataset` of both.",
            error=NotImplementedError,  # as all names that Keras 3 does not have
        )
    named["optimizer"] = _of_this_model(named.get("optimizer", "rmsprop"), self)
    for name in {"loss", "loss_weights"} & named.keys():
        named[name] = by_output(self, named[name])
    if num_outputs(self) > 1 and (isinstance(named.get("loss"), str) or callable(named.get("loss"))):
        named["loss"] = [named["loss"]] * num_outputs(self)
    for name in {"metrics", "weighted_metrics"} & named.keys():
        named[name] = _of_each_output(self, named[name])
    compile_model(self, **{name: value for name, value in named.items() if name not in LEFT})
    settle(self)


def _of_this_model(optimizer: Any, model: keras.Model) -> Any:
    """Return the optimizer, or another one like it if it trains another model: Keras 2 kept slots of each apart."""
    if not isinstance(optimizer, keras.Optimizer):
        return optimizer
    if _models.setdefault(optimizer, weakref.ref(template_of(model)))() is not template_of(model):
        return _of_this_model(another(optimizer), model)
    return optimizer


def _of_each_output(model: keras.Model, metrics: Any) -> Any:
    """Return metrics for each output: a list without lists inside is one for all of them."""
    metrics, outputs = keras.tree.map_structure(_with_targets_of_floats, metrics, none_is_leaf=True), num_outputs(model)
    if isinstance(metrics, dict):
        values = by_output(model, metrics)
        return _listed(values) if outputs == 1 else values if values is metrics else [*map(_listed, values)]
    if outputs < 2 or not metrics or any(isinstance(each, list | tuple) or each is None for each in metrics):
        return metrics
    return [metrics, *([_copy(each) for each in metrics] for _ in range(outputs - 1))]


def _listed(metrics: Any) -> Any:
    return metrics if metrics is None or isinstance(metrics, list | tuple | dict) else [metrics]


def _copy(metric: Any) -> Any:
    return type(metric).from_config(metric.get_config()) if isinstance(metric, keras.Metric) else metric


def _with_targets_of_floats(metric: Any) -> Any:
    """Return a script's function as a metric: targets had the type of the outputs."""
    if not inspect.isfunction(metric) or metric.__module__.startswith("keras."):
        return metric

    @functools.wraps(metric)
    def wrapper(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        return metric(keras.ops.cast(y_true, y_pred.dtype), y_pred, *args, **kwargs)

    return wrapper


def _metrics_names(stock: Callable, self: keras.Model) -> list[str]:
    """Return the names of the values that `evaluate()` returns, in order."""
    known = self.compiled and all(getattr(metric, "built", True) for metric in self.metrics)
    return list(self.get_metrics_result()) if known else stock(self)
