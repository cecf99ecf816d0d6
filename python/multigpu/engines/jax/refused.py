"""Raise errors that name what this engine cannot do."""

from typing import NoReturn

import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse

TENSORFLOW = "set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`"


def check_rows(model: keras.Model, groups: bool = False) -> None:
    """Raise an error if something else divides the model, too. All work on rows is exact on this engine.

    Raises:
        ValueError: a distribution of Keras is active, or Keras' variables are those of Flax.
    """
    check_no_distribution()
    if keras.config.is_nnx_enabled():
        raise refuse(
            "a model with variables of Keras",
            "one in the NNX mode of Keras, whose variables are those of Flax",
            "Leave out KERAS_NNX_ENABLED, and `keras.config.enable_nnx()`.",
        )


def check_no_distribution() -> None:
    """Raise an error for a distribution of Keras, which would divide the arrays a second time."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise refuse(
            "no `keras.distribution` in force: a parallel model divides weights and batches itself",
            f"{type(distribution).__name__}",
            "Take it back with `keras.distribution.set_distribution(None)`.",
        )


def on_device(device: str) -> NoReturn:
    """Raise an error: JAX cannot place parts of a model on several devices inside of a compiled step.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "Keras to run on TensorFlow, whose engine places parts of a model on devices",
        f"on_device({shown(device)}) on JAX, where a step is one program without devices inside; it divides weights "
        "among the GPUs by itself",
        f"Leave it out, or {TENSORFLOW}.",
    )


def part_devices(model: keras.Model) -> NoReturn:
    """Raise an error: there are no parts, and so no devices for groups.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "`gpus` to be a whole number or a list of devices",
        "a list of groups, which are for parts of a model on several devices",
        f"JAX has none. Name each device by itself, or {TENSORFLOW}.",
    )


def estimate_devices(*_: object) -> NoReturn:
    """Raise an error: there is no estimate of each device's memory.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "Keras to run on TensorFlow, whose engine estimates memory",
        "estimate() on JAX",
        f"See what devices hold in `parallel.overview()`, or {TENSORFLOW}.",
    )


estimate_layers = estimate_devices
