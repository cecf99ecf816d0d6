"""`multi_gpu_model` for classes that take a parallel model's `__dict__`, as scripts did to save the template."""

import functools
from typing import Any

import multigpu.model.replicate
from multigpu.model.parallel_model import ParallelModel

VERBS = (
    *("compile", "fit", "evaluate", "predict", "fit_generator", "evaluate_generator", "predict_generator"),
    *("train_on_batch", "test_on_batch", "predict_on_batch", "predict_classes", "predict_proba", "summary"),
)


@functools.wraps(multigpu.model.replicate.multi_gpu_model)
def multi_gpu_model(*args: Any, **kwargs: Any) -> ParallelModel:
    """The parallel model, with verbs of its own in its `__dict__`.

    `class ModelMGPU(Model)` with `self.__dict__.update(parallel.__dict__)` was in many scripts. With the verbs in
    there, what it does is done by the parallel model; without them Keras would train the copy as a model of its own.
    """
    parallel = multigpu.model.replicate.multi_gpu_model(*args, **kwargs)
    parallel.__dict__.update({verb: getattr(parallel, verb) for verb in VERBS})
    return parallel
