"""What R calls."""

from typing import Any

import keras

from multigpu.batches.fit_arguments import call_fit, call_with_batches
from multigpu.parallel.overrides import defined_by_class


def fit(model: keras.Model, **arguments: Any) -> keras.callbacks.History:
    """`model.fit(**arguments)` with large arrays viewed rather than copied: same batches, same order, same weights."""
    return model.fit(**arguments) if has_own(model, "fit") else call_fit(model.fit, arguments)


def evaluate(model: keras.Model, **arguments: Any) -> Any:
    """`model.evaluate(**arguments)` with large arrays viewed rather than copied."""
    return model.evaluate(**arguments) if has_own(model, "evaluate") else call_with_batches(model.evaluate, arguments)


def predict(model: keras.Model, **arguments: Any) -> Any:
    """`model.predict(**arguments)` with large arrays viewed rather than copied."""
    return model.predict(**arguments) if has_own(model, "predict") else call_with_batches(model.predict, arguments)


def has_own(model: keras.Model, verb: str) -> bool:
    """Whether the model's class has a verb of its own, which takes the arrays as they are."""
    return defined_by_class(model.__class__, verb) is not None
