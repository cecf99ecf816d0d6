"""Time real training steps, and restore all state afterwards."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import keras
import numpy as np

from multigpu.base.arguments import shown
from multigpu.base.arrays import kept_type
from multigpu.base.refusal import refuse
from multigpu.model.parallel_model import ParallelModel
from multigpu.private_api.default_generator import made_default_generator
from multigpu.private_api.layers import variables_of


def timed_batches(x: Any, y: Any, batch_size: int, number: int) -> tuple[list[Any], float]:
    """Return so many batches, repeated if the data have fewer, and the median seconds to get one from the data."""
    taken: list[Any] = []
    seconds: list[float] = []
    begin = time.perf_counter()
    for batch in islice(_batch_source(x, y, batch_size), number):
        seconds.append(time.perf_counter() - begin)
        taken.append(keras.tree.map_structure(_as_tensor, batch))
        begin = time.perf_counter()
    if not taken:
        raise refuse("`x` to give at least one batch", "none", "Pass arrays with rows in them.")
    whole = [batch for batch in taken if _num_rows(batch) == _num_rows(taken[0])]  # the last batch may be smaller
    return list(islice(cycle(whole), number)), float(np.median(seconds[1:] or seconds))


def _num_rows(batch: Any) -> int:
    tensors = keras.tree.flatten(batch)
    if not tensors or not all(len(tensor.shape) for tensor in tensors):
        raise refuse(
            "`x` to give batches, whose tensors have rows", f"{shown(batch)}", "Use `x.batch(32)`, as for `fit()`."
        )
    return len(tensors[0])


def _batch_source(x: Any, y: Any, batch_size: int) -> Iterable[Any]:
    if isinstance(x, keras.utils.PyDataset):
        return (x[number] for number in range(len(x)))
    return x if gives_batches(x) else _batches_of_arrays(x, y, batch_size)


def gives_batches(x: Any) -> bool:
    """Return whether data give batches by themselves, as a `tf.data.Dataset` or a `keras.utils.PyDataset` does."""
    return isinstance(x, keras.utils.PyDataset) or hasattr(x, "element_spec")


def _as_tensor(x: Any) -> Any:
    return keras.ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x


def _batches_of_arrays(x: Any, y: Any, size: int) -> Iterator[Any]:
    data = keras.tree.map_structure(np.asarray, keras.utils.pack_x_y_sample_weight(x, y))
    for begin in range(0, len(keras.tree.flatten(data)[0]), size):
        at = slice(begin, begin + size)
        yield keras.tree.map_structure(lambda array, at=at: array[at].astype(kept_type(array)), data)


def step_seconds(model: keras.Model, taken: Sequence[Any], bar: keras.utils.Progbar) -> float:
    """Return the median seconds of a step. The first one, which traces functions, does not count."""
    seconds = []
    for batch in taken:
        begin = time.perf_counter()
        model.train_on_batch(*keras.utils.unpack_x_y_sample_weight(batch))
        seconds.append(time.perf_counter() - begin)
        bar.add(1)
    return float(np.median(seconds[1:]))


@contextmanager
def everything_kept(parallel: ParallelModel) -> Iterator[None]:
    """Restore the values of all variables at the end of a `with` block."""
    if not parallel.optimizer.built:
        parallel.make_train_function()  # builds the model
    models = (parallel, parallel.template)
    of_models = (variable for model in models for variable in [*variables_of(model), *model.metrics_variables])
    everything = [*of_models, made_default_generator().state]
    values = [(v, keras.ops.convert_to_numpy(v)) for v in {id(v): v for v in everything}.values()]
    try:
        yield
    finally:
        for model in models:
            model.reset_metrics()  # some variables did not exist before
        for variable, value in values:
            variable.assign(value)
