"""Moving weights, with the slots of their optimizers, and the functions that have to be traced anew."""

import gc
from collections.abc import Iterable, Sequence

import keras

from multigpu.weights.optimizer_slots import place_slots
from multigpu.weights.place_locate import place


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Places variables, takes the slots of their optimizers along, and makes models trace their functions anew."""
    moved = [variable for variable, device in destinations if place([variable], device)]
    if not moved:
        return
    for model in models_with(moved):
        model.train_function = model.test_function = model.predict_function = None
        if getattr(model, "optimizer", None) is not None:
            place_slots(model.optimizer, model.trainable_variables)


def models_with(variables: Sequence[keras.Variable]) -> list[keras.Model]:
    """All living models with any of these variables, also those that only share a layer: they hold stale functions."""
    wanted = set(map(id, variables))
    classes = _with_subclasses(keras.Model)
    models = [thing for thing in gc.get_objects() if type(thing) in classes]
    return [model for model in models if any(id(variable) in wanted for variable in model.variables)]


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
