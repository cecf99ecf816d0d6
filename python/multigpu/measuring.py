"""Is it worth it? A few real steps on one device and on all, and where the time goes."""

from typing import Any

import keras

from multigpu.measurement import Measurement, told
from multigpu.parallel import ParallelModel
from multigpu.timed_steps import alone, everything_kept, first_rows, step_seconds, timed_batches


def measure(
    parallel: keras.Model, x: Any, y: Any = None, batch_size: int = 32, steps: int = 5, verbose: int = 1
) -> Measurement:
    """Takes a few real training steps on one device and on all, and tells whether the parallel model pays.

    Steps are those of `train_on_batch()` on batches that are at hand. *Compute* is what the template takes on one
    device for the rows of one replica; what the parallel model takes beyond that is *transfer*, with cutting and
    merging; and what the data take for a batch beyond a step, since the next batch is made meanwhile, is *waiting*.
    Where devices are parts of one CPU or GPU they compete for it, and that counts as transfer. Functions are traced
    anew, which takes as long as the first step of `fit()`, three times over.

    Weights, optimizer, metrics and random states are afterwards what they were. Meanwhile they are moved: do not use
    the models from another thread.

    Args:
        parallel: a compiled parallel model.
        x: arrays, a `tf.data.Dataset` or a `keras.utils.PyDataset` of batches, as `fit()` takes them.
        y: targets, where `x` has none.
        batch_size: rows of a batch, where `x` is arrays.
        steps: how many steps are measured each way; one more is taken before.
        verbose: 1 shows a progress bar, 0 does not.

    Returns:
        A `Measurement`, which prints as a table with a sentence.

    Raises:
        ValueError: the model is not parallel or not compiled, or the data give no batch.

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
    _check(parallel, steps)
    taken, input_seconds = timed_batches(x, y, batch_size, steps + 1)
    rows = len(keras.tree.flatten(taken[0])[0])
    share = max(parallel.plan.rows(rows))
    bar = keras.utils.Progbar(3 * (steps + 1), verbose=verbose, unit_name="step")
    with everything_kept(parallel):
        everywhere = step_seconds(parallel, taken, bar)
        with alone(parallel.template, parallel.plan):
            one = step_seconds(parallel.template, taken, bar)
            part = step_seconds(parallel.template, [first_rows(batch, share) for batch in taken], bar)
    return told(parallel.plan, rows, one, everywhere, part, input_seconds)


def _check(parallel: Any, steps: Any) -> None:
    if not issubclass(type(parallel), ParallelModel):  # by `isinstance()` it is what its template is
        raise ValueError(
            f"Expected a parallel model. Received: {type(parallel).__name__}. Make one with `multi_gpu_model(model)`."
        )
    if parallel.plan.cluster is not None:
        raise ValueError(
            f"Expected a parallel model of one machine. Received: {parallel.name!r}, which "
            f"{parallel.plan.cluster.size} workers train together. Measure it without TF_CONFIG, on one of them."
        )
    if not parallel.compiled:
        raise ValueError(
            f"Expected a compiled model. Received: {parallel.name!r}, which is not. Call `parallel.compile()` first."
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(
            f"Expected `steps` to be a whole number of 1 or more. Received: steps={steps!r}. Use `steps=5`."
        )
