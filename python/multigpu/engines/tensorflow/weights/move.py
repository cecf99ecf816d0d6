"""Move weights, with the slots of their optimizers."""

import gc
from collections.abc import Iterable, Sequence

import keras

from multigpu.engines.tensorflow.weights.place_locate import locate, place, place_slots
from multigpu.private_api.layers import optimizers_of


def move(destinations: Iterable[tuple[keras.Variable, str]]) -> None:
    """Place variables, and move the slots of their optimizers with them.

    Models continue to train with their traced functions, so that freezing takes effect only with `compile()`. Functions
    that XLA compiles are traced again, because they are programs for one device.
    """
    moved = place(destinations)
    for model in models_with(moved) if moved else ():
        if getattr(model, "jit_compile", False):
            model.train_function = model.test_function = model.predict_function = None
        for optimizer in optimizers_of(model):
            place_slots(optimizer, model.variables)


def holders(model: keras.Model) -> list[str]:
    """The devices that hold weights of a model now."""
    return sorted({locate(variable) for variable in model.variables})


def models_with(variables: Sequence[keras.Variable]) -> list[keras.Model]:
    """Return all living models with any of these variables, also those that only share a layer."""
    wanted = set(map(id, variables))
    classes = _with_subclasses(keras.Model)
    models = [thing for thing in gc.get_objects() if type(thing) in classes]
    return [model for model in models if not wanted.isdisjoint(map(id, _known_variables(model)))]


def _known_variables(model: keras.Model) -> Sequence[keras.Variable]:
    """The variables of a model; none of one that cannot tell them yet, while it waits for its parts: it has not run."""
    try:
        return list(model.variables)
    except Exception:  # whatever its user's own property raises, or because `super().__init__()` comes later
        return ()


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
