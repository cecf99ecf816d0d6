"""The template: the layers inside it, and what its outputs have to be."""

from collections.abc import Iterable

import keras


def sublayers(model: keras.Model) -> list[keras.Layer]:
    """All layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def no_batch_axis(name: str, shape: Iterable[int | None]) -> str:
    """The message for an output that cannot be merged."""
    return (
        "Expected every output of the template to have a batch axis, so that the slices of the replicas can be merged. "
        f"Received: output {name!r} with shape {tuple(shape)}. Return one value per row, for instance a loss of shape "
        "(batch,), or move the reduction into a loss function or into `add_loss()`."
    )
