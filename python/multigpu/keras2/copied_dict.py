"""`multi_gpu_model` for classes that take a parallel model's `__dict__`, as scripts did to save the template."""

import functools
from typing import Any

import multigpu.model.replicate
from multigpu.model.parallel_model import ParallelModel

COPIED_VERBS = (
    *("compile", "fit", "evaluate", "predict", "fit_generator", "evaluate_generator", "predict_generator"),
    *("train_on_batch", "test_on_batch", "predict_on_batch", "predict_classes", "predict_proba", "summary"),
)


@functools.wraps(multigpu.model.replicate.multi_gpu_model)
def multi_gpu_model(*args: Any, **kwargs: Any) -> ParallelModel:
    """Return the parallel model, with methods of its own in its `__dict__`.

    Many scripts contain `class ModelMGPU(Model)` with `self.__dict__.update(parallel.__dict__)`. Methods in the
    `__dict__` make such a copy call the parallel model. Without them, Keras would train the copy as a separate model.
    """
    parallel = multigpu.model.replicate.multi_gpu_model(*args, **kwargs)
    parallel.__dict__.update({verb: getattr(parallel, verb) for verb in COPIED_VERBS})
    return parallel
