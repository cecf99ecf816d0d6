"""Measure a few training steps on one device and on all devices, and where the time goes."""

from typing import Any

import keras

from multigpu.base.arguments import check_flags, check_whole_number, shown
from multigpu.base.refusal import refuse
from multigpu.engines import on_one_device
from multigpu.model.parallel_model import ParallelModel
from multigpu.plan.plan import MOST_ROWS
from multigpu.private_api.class_code import defined_by_class
from multigpu.profiling.measurement import Measurement, measurement_from_seconds
from multigpu.profiling.timed_steps import everything_kept, gives_batches, step_seconds, timed_batches

MOST_STEPS = 100_000  # the batches of all steps are in memory at the same time


def measure(
    parallel: keras.Model, x: Any, y: Any = None, batch_size: int = 32, steps: int = 5, verbose: int = 1
) -> Measurement:
    """Run a few training steps on one device and on all, and return their times and whether several devices pay.

    It calls `train_on_batch()` on batches that are already in memory. *Compute* is the time of the template on one
    device, for the rows of one replica. *Transfer* is the additional time of the parallel model, with splitting and
    merging. *Waiting* is the time per step spent waiting for the data, beyond the time of the step before. If the
    devices are parts of one CPU or GPU, they compete for it, and this counts as transfer. Functions are traced again,
    which takes three times as long as the first step of `fit()`.

    Weights, optimizer, metrics and random states are restored. Do not use the models from another thread meanwhile.

    Args:
        parallel: a compiled parallel model.
        x: arrays, a `tf.data.Dataset` or a `keras.utils.PyDataset` of batches, as `fit()` takes them.
        y: targets, if `x` does not contain them.
        batch_size: rows of a batch, if `x` is arrays.
        steps: how many steps to time on all devices and on one, after a first step that does not count.
        verbose: 1 shows a progress bar, 0 does not.

    Returns:
        A `Measurement`, which prints as a table with a sentence.

    Raises:
        ValueError: the model is not parallel or not compiled, the data give no batch, or another argument is not
            understood.

    Example:
        >>> import keras, multigpu, numpy
        >>> multigpu.simulate_gpus(2)
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> parallel = multigpu.multi_gpu_model(model, gpus=2)
        >>> parallel.compile(optimizer="sgd", loss="mse")
        >>> measured = multigpu.measure(parallel, numpy.ones((64, 4)), numpy.ones((64, 1)), verbose=0)
        >>> measured.speed_up > 0
        True
    """
    _check_parallel(parallel)
    _check_data(x, y)
    check_whole_number("batch_size", batch_size, MOST_ROWS, "batch_size=32")
    check_whole_number("steps", steps, MOST_STEPS, "steps=5")
    check_flags(verbose=verbose)
    taken, input_seconds = timed_batches(x, y, batch_size, steps + 1)
    _check_targets(parallel.template, taken[0])
    rows = len(keras.tree.flatten(taken[0])[0])
    share = max(parallel.plan.rows(rows))
    bar = keras.utils.Progbar(3 * (steps + 1), verbose=verbose, unit_name="step")
    with everything_kept(parallel):
        everywhere = step_seconds(parallel, taken, bar)
        with on_one_device(parallel.template, parallel.plan):
            one = step_seconds(parallel.template, taken, bar)
            part = step_seconds(parallel.template, keras.tree.map_structure(lambda x: x[:share], taken), bar)
    return measurement_from_seconds(parallel.plan, rows, one, everywhere, part, input_seconds)


def _check_parallel(parallel: Any) -> None:
    if not isinstance(parallel, ParallelModel):
        raise refuse(
            "`parallel` to be a parallel model", f"{type(parallel).__name__}", "Make one with `multi_gpu_model(model)`."
        )
    if parallel.plan.cluster is not None:
        raise refuse(
            "a parallel model of one machine",
            f"{parallel.name!r}, which {parallel.plan.cluster.size} workers train together",
            "Measure it without TF_CONFIG, on one of them.",
        )
    if not parallel.compiled:
        raise refuse("a compiled model", f"{parallel.name!r}, which is not", "Call `parallel.compile()` first.")


def _check_data(x: Any, y: Any) -> None:
    """Raise a ValueError if the rows of the data cannot be identified: all that is taken for rows is copied."""
    if gives_batches(x):
        if y is not None:
            raise refuse("no `y`, since `x` gives batches", f"y={shown(y)}", "Let `x` give inputs and targets.")
        return
    rows, targets = _num_rows("x", x), None if y is None else _num_rows("y", y)
    if targets not in (None, rows):
        raise refuse(
            "as many rows in `y` as in `x`", f"{targets} in `y` and {rows} in `x`", "Pass the targets of these inputs."
        )


def _check_targets(template: keras.Model, batch: Any) -> None:
    """Raise a ValueError if batches have no targets but a loss of Keras needs them."""
    _, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    own = [defined_by_class(type(template), name) for name in ("train_step", "compute_loss")]
    if y is None and template.loss is not None and own == [None, None]:
        raise refuse(
            "targets, which the model's loss compares",
            "y=None",
            "Pass `measure(parallel, x, y)`, or let a dataset `x` give inputs and targets.",
        )


def _num_rows(name: str, data: Any) -> int:
    try:
        arrays = keras.tree.flatten(data)
    except Exception:  # raised for a list that contains itself
        arrays = []
    are_arrays = all(hasattr(array, "__array__") and len(array.shape) > 0 for array in arrays)
    numbers = {int(array.shape[0]) for array in arrays} if are_arrays else set()
    if len(numbers) != 1:
        raise refuse(
            f"`{name}` to be arrays with the same number of rows, or a dataset",
            f"{name}={shown(data)}",
            "Use numpy arrays, as for `fit()`.",
        )
    return numbers.pop()
