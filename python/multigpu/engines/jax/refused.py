"""Raise errors that name what this engine cannot do."""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import jax
import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse

TENSORFLOW = "set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`"
ONLY_COMPILED = {  # a part of JAX's error → what it is about, and why it is an error
    "SdyArray": ("callback to the host, such as `jax.pure_callback()`,", "JAX runs there on one device only"),
    "Unsupported reduction computation": (
        "reduction with a function of its own, of bits, or to the largest of complex numbers,",
        "XLA cannot make there over several devices",
    ),
}


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
            "Unset KERAS_NNX_ENABLED, and remove the call of `keras.config.enable_nnx()`.",
        )


def check_no_distribution() -> None:
    """Raise an error for a distribution of Keras, which would divide the arrays a second time."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise refuse(
            "no `keras.distribution` to be set, because a parallel model divides weights and batches itself",
            f"{type(distribution).__name__}",
            "Unset it with `keras.distribution.set_distribution(None)`.",
        )


@contextlib.contextmanager
def named_op_by_op() -> Iterator[None]:
    """Make errors name what several devices cannot run in a `with` block whose operations run one by one."""
    try:
        yield
    except (TypeError, jax.errors.JaxRuntimeError) as error:
        sign = next((sign for sign in ONLY_COMPILED if sign in str(error)), None)
        if sign is None:
            raise
        what, why = ONLY_COMPILED[sign]
        raise refuse(
            f"no {what} in a direct call or a step that is not compiled",
            f"a layer with one, which {why}",
            "Use `fit()`, `evaluate()` or `predict()`, compiled with the default of `run_eagerly` and `jit_compile`.",
        ) from error


def on_device(device: str) -> NoReturn:
    """Raise an error: JAX cannot place parts of a model on several devices inside of a compiled step."""
    _refuse_parts(f"on_device({shown(device)})", "Leave it out")


def part_devices(model: keras.Model) -> NoReturn:
    """Raise an error: there are no parts, and so no devices for groups."""
    _refuse_parts("a list of groups", "List single devices, as in `gpus=[0, 1]`")


def estimate_layers(template: keras.Model) -> NoReturn:
    """Raise an error: JAX does not cut a model into parts."""
    _refuse_parts(f"a call for the layers of {template.name!r}", "Use the rows of `estimate()`")


def _refuse_parts(received: str, use: str) -> NoReturn:
    """Raise the error that names the other engine.

    Raises:
        ValueError: always.
    """
    raise refuse(
        "Keras to run on TensorFlow, because only there can parts of a model be on different devices",
        f"{received} on JAX, which divides weights among the GPUs automatically",
        f"{use}, or {TENSORFLOW}.",
    )
