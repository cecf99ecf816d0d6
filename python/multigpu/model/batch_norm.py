"""Set the statistics of a model's BatchNormalization layers: of each slice, or of the global batch."""

from typing import TypeVar

import keras

from multigpu.base.arguments import check_flags
from multigpu.private_api.layers import batch_normalizations
from multigpu.saving.template_facade import check_model

Model = TypeVar("Model", bound=keras.Model)


def synchronize_batch_norm(model: Model, synchronized: bool = True) -> Model:
    """Make all BatchNormalization layers of a model use the statistics of the global batch, as on one device.

    Without it, each replica normalizes its slice by the mean and variance of the slice's own rows. This is faster, but
    the numbers differ from those of one device, and they are noisy if slices are small. The function sets
    `synchronized=True` on layers at any depth, also in models of `keras.applications`, which have no argument for it.
    Weights do not change. You can call it at any time, and it applies from the next `fit()` on.

    A synchronized layer waits for all replicas twice in each step: forward and backward. XLA does not compile such a
    template, and it does not train with `run_eagerly=True`. Its files contain `synchronized=True`, which Keras accepts
    only on TensorFlow. On JAX the statistics are always those of the global batch, and the function changes nothing.

    Args:
        model: a template or a parallel model.
        synchronized: False goes back to the statistics of each slice.

    Returns:
        The model.

    Raises:
        ValueError: `model` is not a Keras model, or `synchronized` is neither True nor False.

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
        layer.synchronized = bool(synchronized) and keras.backend.backend() != "jax"
    return model
