"""Refuse, by name, what this engine cannot do."""

from typing import NoReturn

import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse

TENSORFLOW = "set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`"


def check_rows(model: keras.Model, groups: bool = False) -> None:
    """Refuses what would divide the model a second time. All that has to do with rows is exact on this engine.

    Raises:
        ValueError: a distribution of Keras is in force, or Keras' variables are those of Flax.
    """
    check_no_distribution()
    if keras.config.is_nnx_enabled():
        raise refuse(
            "a model with variables of Keras",
            "one in the NNX mode of Keras, whose variables are those of Flax",
            "Leave out KERAS_NNX_ENABLED, and `keras.config.enable_nnx()`.",
        )


def check_no_distribution() -> None:
    """Refuses a distribution of Keras, which would divide what is divided already."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise refuse(
            "no `keras.distribution` in force: a parallel model divides weights and batches itself",
            f"{type(distribution).__name__}",
            "Take it back with `keras.distribution.set_distribution(None)`.",
        )


def on_device(device: str) -> NoReturn:
    """Parts of one model on several devices, which JAX cannot place inside of a compiled step.

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
    """The devices of parts, for groups.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "`gpus` to be a whole number or a list of devices",
        "a list of groups, which are for parts of a model on several devices",
        f"JAX has none. Name each device by itself, or {TENSORFLOW}.",
    )


def estimate_devices(*_: object) -> NoReturn:
    """Refuse to estimate the memory of each device.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "Keras to run on TensorFlow, whose engine estimates memory",
        "estimate() on JAX",
        f"See what devices hold in `parallel.overview()`, or {TENSORFLOW}.",
    )


estimate_layers = estimate_devices
