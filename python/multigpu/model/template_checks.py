"""Checks of a template: raise an error for an unsupported model before training."""

import keras

from multigpu.base.refusal import refuse
from multigpu.engines import check_rows
from multigpu.model.parallel_model import ParallelModel
from multigpu.model.redirected_template import parallel_of
from multigpu.private_api.class_code import assigned_verbs, parallel_parts
from multigpu.private_api.layers import sublayers


def check_template(model: keras.Model, groups: bool = False) -> None:
    """Raise a ValueError if a model cannot be replicated. The message names the reason.

    Args:
        model: the template to check.
        groups: whether each replica has several devices, so that the template may have parts.

    Raises:
        ValueError: `model` is parallel already, unbuilt or stateful; or it has inputs of a fixed batch size or outputs
            without a batch axis.
    """
    _check_not_parallel(model)
    _check_verbs(model)
    _check_called(model)
    _check_built(model)
    check_rows(model, groups)


def _check_not_parallel(model: keras.Model) -> None:
    for part in [model, *sublayers(model)]:
        parallel = parallel_of(part)
        if isinstance(parallel, ParallelModel):
            raise refuse(
                "a template: a model that runs on one device",
                f"{part.name!r}, which is parallel already ({parallel.plan})",
                "Pass `parallel.template` to replicate it again.",
            )


def _check_verbs(model: keras.Model) -> None:
    """Raise a ValueError if methods were assigned to the model itself: they would run on one device."""
    for name in assigned_verbs(model):
        raise refuse(
            f"`{name}` to be defined by the class of a model, so that its calls can run on all devices",
            f"{model.name!r}, to which it was assigned",
            f"Write a subclass with a method `{name}(self, ...)`.",
        )


def _check_called(model: keras.Model) -> None:
    """Raise a ValueError if a class has no call that can be spread, such as one whose `train_step` calls only parts."""
    if getattr(model.call, "__func__", None) is keras.Model.call:
        raise refuse(
            "a model whose class defines `call()`: that is the call that is spread over the devices",
            f"{model.name!r} of the class {type(model).__name__}, which has none",
            f"{parallel_parts(model)}",
        )


def _check_built(model: keras.Model) -> None:
    if not model.built:
        raise refuse(
            "a built model, whose weights exist",
            f"{model.name!r}, which is not built",
            "Start it with `keras.Input(shape)`, or call it once on a batch, before `multi_gpu_model()`.",
        )
