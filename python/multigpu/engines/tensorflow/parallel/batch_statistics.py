"""Statistics of BatchNormalizations: of each slice, or of the global batch."""

from collections.abc import Collection

import keras

from multigpu.private_api.layers import batch_normalizations
from multigpu.private_api.warn_caller import warn


def synchronized_layers(model: keras.Layer) -> list[int]:
    """Ids of the synchronized layers: a trace was made for them."""
    return [id(layer) for layer in batch_normalizations(model) if layer.synchronized]


def of_slices(model: keras.Layer) -> list[keras.Layer]:
    """The layers that take statistics of each slice while they train. Frozen ones take none."""
    return [layer for layer in batch_normalizations(model) if layer.trainable and not layer.synchronized]


def warn_of_slices(layers: Collection[keras.Layer]) -> None:
    """Warns of layers that train by the statistics of each slice."""
    several = "s" * (len(layers) > 1)
    warn(
        "Expected statistics of the global batch, as on one device. "
        f"Received: {len(layers)} BatchNormalization{several} "
        f"with those of each slice, such as {next(iter(layers)).name!r}. Call `multigpu.synchronize_batch_norm(model)` "
        "for the numbers of one device; without it, steps are faster."
    )
