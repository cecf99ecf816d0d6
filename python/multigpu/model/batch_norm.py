"""BatchNormalization of a whole model: statistics of each slice, or of the global batch."""

from typing import TypeVar

import keras

from multigpu.base.arguments import check_flags, check_model
from multigpu.private_api.layers import batch_normalizations

Model = TypeVar("Model", bound=keras.Model)


def synchronize_batch_norm(model: Model, synchronized: bool = True) -> Model:
    """Make all BatchNormalization layers of a model use the statistics of the global batch, as on one device.

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
    for layer in batch_normalizations(model):
        layer.synchronized = bool(synchronized)
    return model
