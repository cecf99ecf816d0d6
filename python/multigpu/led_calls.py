"""Templates that write their own training step: their calls of themselves are led to the parallel model."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras

STEPS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")


def has_own_steps(template: keras.Model) -> bool:
    """Whether the template's class writes part of its training itself."""
    return any(getattr(type(template), step) is not getattr(keras.Model, step) for step in STEPS)


@contextlib.contextmanager
def calls_led_to(call: Callable[..., Any], template: keras.Model, step: str) -> Iterator[None]:
    """While it lasts, `template(...)` runs `call`. A step in which that never happened would not have been spread.

    Raises:
        ValueError: the template did not call itself in the step.
    """
    count = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return call(*args, **kwargs)

    template.__dict__["call"] = counted  # not by assignment: Keras would take it for a part of the model
    try:
        yield
    finally:
        template.__dict__.pop("call", None)
    if not count:
        raise ValueError(
            f"Expected `{step}` of {type(template).__name__} to call the model itself, as `self(x, training=True)`: "
            "that is the call that is spread over the devices. Received: one that only calls parts of it. "
            "Make those parts parallel instead, for instance `self.encoder = multi_gpu_model(encoder)`, and train the "
            "model as it is."
        )


def call_directly(template: keras.Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the template itself, also while its calls are led elsewhere."""
    led = template.__dict__.pop("call", None)
    try:
        return template(*args, **kwargs)
    finally:
        if led is not None:
            template.__dict__["call"] = led
