"""Values by the names of outputs, as Keras 2 accepted them for targets, weights, losses and metrics."""

from typing import Any

import keras


def num_outputs(model: keras.Model) -> int:
    """Return the number of outputs, or 0 if the model does not know it, or has them in a structure of its own."""
    outputs = getattr(model, "outputs", None) or []
    return 0 if len(outputs) > 1 and not isinstance(model.output, list | tuple) else len(outputs)


def by_output(model: keras.Model, values: Any) -> Any:
    """Return values by name as a list in the order of outputs, with None for those without one, or as the only one."""
    if not isinstance(values, dict) or not num_outputs(model):
        return values
    if num_outputs(model) == 1:
        return next(iter(values.values())) if len(values) == 1 else values
    return [values.get(name) for name in model.output_names] if values.keys() <= {*model.output_names} else values


def batch_by_output(model: keras.Model, batch: Any) -> Any:
    """Return inputs, targets and weights, the last two in the order of outputs."""
    if not isinstance(batch, tuple | list):
        return batch
    return type(batch)([*batch[:1], *(by_output(model, each) for each in batch[1:])])
