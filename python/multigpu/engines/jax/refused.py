"""Refuse, by name, what this engine cannot do."""

from typing import NoReturn

import keras

from multigpu.base.arguments import shown

TENSORFLOW = "set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`"


def check_rows(model: keras.Model, groups: bool = False) -> None:
    """Refuses what would divide the model a second time. All that has to do with rows is exact on this engine.

    Raises:
        ValueError: a distribution of Keras is in force, or Keras' variables are those of Flax.
    """
    check_no_distribution()
    if keras.config.is_nnx_enabled():
        raise ValueError(
            "Expected a model with variables of Keras. Received: one in the NNX mode of Keras, whose variables are "
            "those of Flax. Leave out KERAS_NNX_ENABLED, and `keras.config.enable_nnx()`."
        )


def check_no_distribution() -> None:
    """Refuses a distribution of Keras, which would divide what is divided already."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise ValueError(
            "Expected no `keras.distribution` in force: a parallel model divides weights and batches itself. "
            f"Received: {type(distribution).__name__}. Take it back with `keras.distribution.set_distribution(None)`."
        )


def on_device(device: str) -> NoReturn:
    """Parts of one model on several devices, which JAX cannot place inside of a compiled step.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        "Expected Keras to run on TensorFlow, whose engine places parts of a model on devices. Received: "
        f"on_device({shown(device)}) on JAX, where a step is one program without devices inside; it divides weights "
        f"among the GPUs by itself. Leave it out, or {TENSORFLOW}."
    )


def part_devices(model: keras.Model) -> NoReturn:
    """The devices of parts, for groups.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        "Expected `gpus` to be a whole number or a list of devices. Received: a list of groups, which are for parts "
        f"of a model on several devices. JAX has none. Name each device by itself, or {TENSORFLOW}."
    )


def estimate_devices(*_: object) -> NoReturn:
    """Refuse to estimate the memory of each device.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        "Expected Keras to run on TensorFlow, whose engine estimates memory. Received: estimate() on JAX. See what "
        f"devices hold in `parallel.overview()`, or {TENSORFLOW}."
    )


estimate_layers = estimate_devices
