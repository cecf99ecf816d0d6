"""Move all weights back to one device when parallel work is done."""

from typing import TypeVar

import keras

from multigpu.engines import move, present_device, visible_devices
from multigpu.private_api.layers import variables_of, wants_jit
from multigpu.saving.template_facade import template_of

Model = TypeVar("Model", bound=keras.Model)


def bring_home(model: Model, device: str | None = None) -> Model:
    """Move all weights of a model, and the slots of its optimizer, to one device, in place and with their values.

    `multi_gpu_model()` spreads a template's weights over the GPUs, which makes parallel training fast. You can still
    use the template alone, but it then fetches the weights from the GPUs in every step; on JAX, its `fit()`,
    `evaluate()` and `predict()` first move them to one device. After `bring_home()` it is as fast as before. Its
    parallel models still work, but more slowly, until you call `multi_gpu_model()` again.

    Args:
        model: a template or a parallel model.
        device: name of a device, such as `"CPU:0"`. None means the first GPU, or the CPU if there is no GPU.

    Returns:
        The model.

    Raises:
        ValueError: the device does not exist, or `model` is not a Keras model.

    Example:
        >>> import keras, multigpu
        >>> multigpu.simulate_gpus(2)
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        >>> parallel = multigpu.multi_gpu_model(model, gpus=2)
        >>> model = multigpu.bring_home(model)
    """
    template = template_of("model", model)
    first = visible_devices()["others"][0]
    wanted = present_device(first if device is None else device, f"Leave it out for {first}.")
    move([(variable, wanted) for variable in variables_of(model)])
    if template.compiled:
        template.jit_compile = wants_jit(template)  # possible again, because all weights are on one device
    return model
