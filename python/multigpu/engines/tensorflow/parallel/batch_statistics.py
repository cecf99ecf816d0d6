"""The statistics of BatchNormalization layers: of each slice, or of the global batch."""

from collections.abc import Collection

import keras

from multigpu.private_api.layers import batch_normalizations
from multigpu.private_api.warn_caller import warn


def synchronized_layers(model: keras.Layer) -> list[int]:
    """Return the ids of the synchronized layers, for which a trace was made."""
    return [id(layer) for layer in batch_normalizations(model) if layer.synchronized]


def of_slices(model: keras.Layer) -> list[keras.Layer]:
    """Return the layers that use the statistics of each slice while they train. Frozen layers use none."""
    return [layer for layer in batch_normalizations(model) if layer.trainable and not layer.synchronized]


def warn_of_slices(layers: Collection[keras.Layer]) -> None:
    """Warn of layers that train with the statistics of each slice."""
    several = "s" * (len(layers) > 1)
    warn(
        "Expected statistics of the global batch, as on one device. "
        f"Received: {len(layers)} BatchNormalization layer{several} "
        f"with statistics of each slice, such as {next(iter(layers)).name!r}. Call "
        "`multigpu.synchronize_batch_norm(model)` for the numbers of one device; without it, steps are faster."
    )
