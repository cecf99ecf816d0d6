"""BatchNormalization of a whole model: statistics of each slice, or of the global batch."""

from collections.abc import Collection
from typing import TypeVar

import keras

from multigpu.arguments import check_flags, check_model
from multigpu.private_api.layers import sublayers
from multigpu.private_api.warn_caller import warn

Model = TypeVar("Model", bound=keras.Model)


def synchronize_batch_norm(model: Model, synchronized: bool = True) -> Model:
    """Has every BatchNormalization of a model take its statistics from the global batch, as on one device.

    Without it, each replica normalizes its slice by the mean and variance of the slice's own rows: faster, but other
    numbers than on one device, and noisy ones where slices are small. The layers get `synchronized=True`, at any depth,
    also in models of `keras.applications`, which have no argument for it. Weights stay what they are. It can be called
    at any time, and the next `fit()` goes by it.

    A synchronized layer waits twice in each step for all replicas, forward and backward. Such a template is not
    compiled by XLA, and does not train with `run_eagerly=True`. Its files say `synchronized=True`, which Keras takes
    on TensorFlow alone.

    Args:
        model: a template or a parallel model.
        synchronized: False turns it back.

    Returns:
        The model.

    Raises:
        ValueError: `model` is no model of Keras, or `synchronized` is neither True nor False.

    Example:
        >>> import keras, multigpu
        >>> multigpu.simulate_gpus(2)
        >>> model = keras.applications.MobileNetV2(input_shape=(32, 32, 3), weights=None, classes=10)
        >>> model = multigpu.synchronize_batch_norm(model)
        >>> parallel = multigpu.multi_gpu_model(model, gpus=2)
    """
    check_model("model", model)
    check_flags(synchronized=synchronized)
    for layer in _normalizations(model):
        layer.synchronized = bool(synchronized)
    return model


def synchronized_layers(model: keras.Layer) -> list[int]:
    """Ids of the synchronized layers: a trace was made for them."""
    return [id(layer) for layer in _normalizations(model) if layer.synchronized]


def of_slices(model: keras.Layer) -> list[keras.Layer]:
    """The layers that take statistics of each slice while they train. Frozen ones take none."""
    return [layer for layer in _normalizations(model) if layer.trainable and not layer.synchronized]


def warn_of_slices(layers: Collection[keras.Layer]) -> None:
    """Warns of layers that train by the statistics of each slice."""
    several = "s" * (len(layers) > 1)
    warn(
        "Expected statistics of the global batch, as on one device. "
        f"Received: {len(layers)} BatchNormalization{several} "
        f"with those of each slice, such as {next(iter(layers)).name!r}. Call `multigpu.synchronize_batch_norm(model)` "
        "for the numbers of one device; without it, steps are faster."
    )


def _normalizations(model: keras.Layer) -> list[keras.Layer]:
    return [layer for layer in sublayers(model) if isinstance(layer, keras.layers.BatchNormalization)]
