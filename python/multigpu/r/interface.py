"""All functions that the R package calls. `__all__` lists them, and R uses no other module of this package.

R converts its data and functions, and Python computes. Python returns simple values, which R can convert back.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import keras

from multigpu.engines import arguments_with_batches, device_table, fit_arguments, join, join_cluster, on_device
from multigpu.model.batch_norm import synchronize_batch_norm
from multigpu.model.bring_home import bring_home
from multigpu.model.devices import simulate_gpus
from multigpu.model.parallel_model import ParallelModel
from multigpu.model.replicate import multi_gpu_model
from multigpu.private_api.class_code import defined_by_class
from multigpu.profiling import estimate as estimation
from multigpu.profiling import measure as measuring
from multigpu.r import main_thread_generator
from multigpu.r import start as r_start
from multigpu.r.embedded.conversion import copy_into, current, kind_of, make_history, numbers_let_go, storage_of
from multigpu.r.embedded.session import new_function
from multigpu.r.interrupts import interruptible
from multigpu.saving.hdf5_models import clean_parallel_hdf5, load_model_hdf5, save_model_hdf5
from multigpu.saving.hdf5_weights import load_model_weights_hdf5, save_model_weights_hdf5

__all__ = ["evaluate", "fit", "is_parallel", "listen", "predict", "said", "summarize", "unknown"]
__all__ += ["estimate", "gpu_table", "layers_of", "measure", "overview", "slices_that_fit", "why_no_gpu"]
__all__ += ["bring_home", "join_cluster", "multi_gpu_model", "on_device", "simulate_gpus", "synchronize_batch_norm"]
__all__ += ["clean_parallel_hdf5", "load_model_hdf5", "save_model_hdf5"]
__all__ += ["load_model_weights_hdf5", "save_model_weights_hdf5"]
__all__ += ["copy_into", "current", "kind_of", "make_history", "new_function", "numbers_let_go", "storage_of"]

LARGEST_INTEGER = 2**31 - 1  # of R; reticulate 1.28 converts larger ones wrongly, without a warning
MEASURED = ["one_device", "all_devices", "input", "speed_up", "compute", "transfer", "waiting", "verdict"]  # columns


def fit(model: keras.Model, **arguments: Any) -> keras.callbacks.History:
    """Call `model.fit(**arguments)`. `x` and `validation_data` may be functions that return the next batch.

    Large arrays are not copied. Batches, their order and the weights are the same as with copies. An interrupt ends
    training after the current step.
    """
    return _call(model, "fit", fit_arguments, arguments)


def evaluate(model: keras.Model, **arguments: Any) -> Any:
    """Call `model.evaluate(**arguments)`, with the arguments and the interrupts of `fit()`."""
    return _call(model, "evaluate", arguments_with_batches, arguments)


def predict(model: keras.Model, **arguments: Any) -> Any:
    """Call `model.predict(**arguments)`, with the arguments and the interrupts of `fit()`."""
    return _call(model, "predict", arguments_with_batches, arguments)


def summarize(model: keras.Model, line_length: int, **arguments: Any) -> None:
    """Call `model.summary(**arguments)`. Without a terminal, rich cuts its table at 80 characters or COLUMNS."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(line_length)
    try:
        model.summary(line_length=line_length, **arguments)
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if before is None else {"COLUMNS": before})


def _call(model: keras.Model, name: str, with_batches: Callable, arguments: Any) -> Any:
    verb = getattr(model, name)
    if callable(arguments.get("x")) or callable(arguments.get("validation_data")):
        return interruptible(main_thread_generator.call, name, model, **arguments)
    if defined_by_class(model.__class__, name) is not None:  # the model's own method receives the arrays unchanged
        return interruptible(verb, **arguments)

    def call(**converted: Any) -> Any:
        with with_batches(converted) as given:
            return verb(**given)

    return interruptible(call, **arguments)


def unknown(model: Any, name: str, arguments: list[str]) -> list[str]:
    """The arguments that a method of a model, or a function of a module, does not have."""
    function = getattr(model.template if is_parallel(model) else model, name)
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if takes_all and not function.__module__.startswith("keras."):  # Keras takes more to refuse it in its own words
        return []
    return [argument for argument in arguments if argument and argument not in parameters]


def is_parallel(model: Any) -> bool:
    """Return whether a model is parallel, on one machine or several. Its `__class__` is its template's."""
    return isinstance(model, ParallelModel)


# Warnings -------------------------------------------------------------------------------------------------------------

_listening: list[tuple[warnings.catch_warnings, list[warnings.WarningMessage]]] = []


def listen() -> None:
    """Collect Python's warnings until `said()`."""
    scope = warnings.catch_warnings(record=True)
    _listening.append((scope, scope.__enter__()))


def said() -> list[str]:
    """Return Python's warnings since `listen()`, each text once."""
    scope, heard = _listening.pop()
    scope.__exit__(None, None, None)
    return list(dict.fromkeys(str(warning.message) for warning in heard))


# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """A table in the form that R needs for a data frame.

    Attributes:
        columns: the values of each column by its name. Unknown values are None.
        table: the table itself, if R needs more from it.
    """

    columns: dict[str, list[Any]]
    table: Any = None


def gpu_table() -> Report:
    """Return the devices that `gpus` counts."""
    return _report(device_table())


def why_no_gpu() -> str:
    """Return the reason why there are no devices."""
    return device_table().why_none()


def overview(model: ParallelModel, batch_size: int | None) -> Report:
    """Return the overview of a parallel model."""
    return _report(model.overview(batch_size))


def estimate(*arguments: Any) -> Report:
    """Return `multigpu.estimate(*arguments)`."""
    return _report(estimation.estimate(*arguments))


def layers_of(report: Report) -> Report:
    """Return the layers of an estimate."""
    return _report(report.table.layers)


def slices_that_fit(report: Report, memory: Any) -> int | None:
    """Return how many slices fit into the memory of a device, by an estimate."""
    return _column([report.table.slices_that_fit(memory)])[0]


def measure(*arguments: Any) -> Report:
    """Return `multigpu.measure(*arguments)`, as one row."""
    return _report([measuring.measure(*arguments)], MEASURED)


def _report(table: Any, columns: Iterable[str] | None = None) -> Report:
    names = [field.name for field in fields(table.of)] if columns is None else columns
    return Report({name: _column([getattr(row, name) for row in table]) for name in names}, table)


def _column(values: list[Any]) -> list[Any]:
    """Return values for an R vector: integers as floats if they, or their sum, are too large for R's integers."""
    if sum(value for value in values if isinstance(value, int)) <= LARGEST_INTEGER:
        return values
    return [None if value is None else float(value) for value in values]


join()  # the workers of TF_CONFIG, if R has asked first
r_start.run()  # runs before this import ends
