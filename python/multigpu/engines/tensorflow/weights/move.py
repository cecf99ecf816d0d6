"""Move weights, with the slots of their optimizers."""

import gc
from collections.abc import Iterable, Sequence

import keras

from multigpu.engines.tensorflow.weights.optimizer_slots import place_slots
from multigpu.engines.tensorflow.weights.place_locate import locate, place


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Place variables, and move the slots of their optimizers with them.

    Models continue to train with their traced functions, so that freezing takes effect only with `compile()`. Functions
    that XLA compiles are traced again, because they are programs for one device.
    """
    moved = place(destinations)
    for model in models_with(moved) if moved else ():
        if model.jit_compile:
            model.train_function = model.test_function = model.predict_function = None
        if getattr(model, "optimizer", None) is not None:
            place_slots(model.optimizer, model.trainable_variables)


def holders(model: keras.Model) -> list[str]:
    """The devices that hold weights of a model now."""
    return sorted({locate(variable) for variable in model.variables})


def models_with(variables: Sequence[keras.Variable]) -> list[keras.Model]:
    """Return all living models with any of these variables, also those that only share a layer."""
    wanted = set(map(id, variables))
    classes = _with_subclasses(keras.Model)
    models = [thing for thing in gc.get_objects() if type(thing) in classes]
    return [model for model in models if any(id(variable) in wanted for variable in model.variables)]


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
