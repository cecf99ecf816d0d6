"""`fit_generator()` and related functions, and other methods that models had in Keras 2 only."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from multigpu.base.arrays import row_weights
from multigpu.keras2.outputs import batch_by_output, by_output
from multigpu.model.parallel_model import ParallelModel

FIT = ("steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data", "validation_steps", "class_weight")
COUNTS = ("steps_per_epoch", "validation_steps", "steps", "epochs", "initial_epoch", "batch_size")
QUEUE = ("max_queue_size", "workers", "use_multiprocessing", "pickle_safe")  # arguments for the fetching of batches


def restore() -> None:
    """Give models back their old methods, and today's methods their old arguments."""
    for model in (keras.Model, ParallelModel):
        for verb, steps in {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}.items():
            setattr(model, verb, _with_old_arguments(getattr(model, verb), steps))
        for verb in ("train_on_batch", "test_on_batch"):
            setattr(model, verb, _with_values_by_output(getattr(model, verb)))
    keras.Model.fit_generator = fit_generator
    keras.Model.evaluate_generator = evaluate_generator
    keras.Model.predict_generator = predict_generator
    keras.Model.predict_proba = lambda self, x, batch_size=None, verbose=0: self.predict(x, batch_size, verbose)
    keras.Model.predict_classes = predict_classes


def fit_generator(self: keras.Model, generator: Any, *args: Any, **kwargs: Any) -> keras.callbacks.History:
    """Call `fit()` on the batches of a generator."""
    names = (*FIT, *QUEUE[:3], "shuffle", "initial_epoch")
    return self.fit(generator, **dict(zip(names, args, strict=False)), **kwargs)


def evaluate_generator(self: keras.Model, generator: Any, steps: int | None = None, *args: Any, **kwargs: Any) -> Any:
    """Call `evaluate()` on the batches of a generator."""
    return self.evaluate(generator, steps=steps, verbose=kwargs.pop("verbose", 0), **kwargs)


def predict_generator(self: keras.Model, generator: Any, steps: int | None = None, *args: Any, **kwargs: Any) -> Any:
    """Call `predict()` on the batches of a generator."""
    return self.predict(generator, steps=steps, verbose=kwargs.pop("verbose", 0), **kwargs)


def predict_classes(self: keras.Model, x: Any, batch_size: int | None = None, verbose: int = 0) -> np.ndarray:
    """Return the class of each row: the largest output, or whether a single output is above one half."""
    predicted = self.predict(x, batch_size, verbose)
    return predicted.argmax(axis=-1) if predicted.shape[-1] > 1 else (predicted > 0.5).astype("int32")


def _with_old_arguments(verb: Callable, steps_name: str) -> Callable:
    @functools.wraps(verb)
    def wrapper(self: keras.Model, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "nb_epoch" in kwargs:
            kwargs["epochs"] = kwargs.pop("nb_epoch")
        for name in COUNTS:
            if isinstance(kwargs.get(name), float):
                kwargs[name] = math.ceil(kwargs[name])  # `len(x) / batch_size` was accepted, too
        workers = kwargs.pop("workers", None)
        for name in QUEUE:
            kwargs.pop(name, None)
        args = (*(by_output(self, y) for y in args[:1]), *args[1:])
        kwargs.update({name: by_output(self, kwargs[name]) for name in {"y", "sample_weight"} & kwargs.keys()})
        _show_validation_data(kwargs.get("callbacks"), kwargs.get("validation_data"))
        if _gives_batches(x):
            weights = kwargs.pop("class_weight", None)
            x, kwargs[steps_name] = _batches(
                self, x, kwargs.get(steps_name), weights, workers, verb.__name__ == "predict"
            )
            if "shuffle" in kwargs or steps_name == "steps_per_epoch":
                kwargs["shuffle"] = kwargs.get("shuffle", True) and isinstance(x, keras.utils.PyDataset)
        validation = kwargs.get("validation_data")
        if _gives_batches(validation):
            data, steps = _batches(self, validation, kwargs.get("validation_steps"), None, workers, False)
            kwargs.update(validation_data=data, validation_steps=steps)
        elif validation is not None:
            kwargs["validation_data"] = batch_by_output(self, validation)
        return verb(self, x, *args, **kwargs)

    return wrapper


def _with_values_by_output(verb: Callable) -> Callable:
    @functools.wraps(verb)
    def wrapper(self: keras.Model, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        return verb(self, x, by_output(self, y), by_output(self, sample_weight), *args, **kwargs)

    return wrapper


def _show_validation_data(callbacks: Any, data: Any) -> None:
    """Give callbacks the validation arrays as in Keras 2: inputs, targets and weights in one list."""
    if isinstance(data, tuple | list):
        arrays = [np.asarray(array) for array in keras.tree.flatten(tuple(data))]
        for callback in keras.tree.flatten(callbacks or []):
            callback.validation_data = arrays if len(data) > 2 else [*arrays, np.ones(len(arrays[0]))]


def _gives_batches(x: Any) -> bool:
    return isinstance(x, keras.utils.PyDataset) or hasattr(x, "__next__")


def _batches(
    model: keras.Model,
    source: Any,
    steps: int | None,
    class_weight: dict[int, float] | None,
    workers: int | None,
    inputs_alone: bool,
) -> tuple[Any, int | None]:
    """Return a source of batches for Keras 3, and the number of steps: in Keras 2 a source never ran out."""
    if isinstance(source, keras.utils.PyDataset) and class_weight is None and steps in (None, len(source)):
        source.workers = max(workers or 1, 1)
        return source, None
    if isinstance(source, keras.utils.PyDataset):
        return _endless(model, _over_and_over(source), class_weight, inputs_alone), steps or len(source)
    return _endless(model, source, class_weight, inputs_alone), steps


def _over_and_over(source: keras.utils.PyDataset) -> Iterator[Any]:
    while True:
        for number in range(len(source)):
            yield source[number]
        source.on_epoch_end()


def _endless(
    model: keras.Model, source: Iterator[Any], class_weight: dict[int, float] | None, inputs_alone: bool
) -> Iterator[tuple]:
    for batch in source:
        is_pair = isinstance(batch, tuple) or _is_pair(batch, inputs_alone)
        parts: tuple = batch_by_output(model, tuple(batch)) if is_pair else (batch,)
        if class_weight is not None and len(parts) == 2:
            parts = (*parts, row_weights(np.asarray(parts[1]), class_weight))
        yield keras.tree.lists_to_tuples(parts)


def _is_pair(batch: Any, inputs_alone: bool) -> bool:
    """Return whether a list is `[x, y]`, and not the inputs of a model with several."""
    return isinstance(batch, list) and not inputs_alone and len(batch) in (2, 3)
