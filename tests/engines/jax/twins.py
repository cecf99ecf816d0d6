"""The claim of these tests: a parallel model has the numbers of its twin, a plain model on one JAX device."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from multigpu import multi_gpu_model

FLOAT32 = {"rtol": 1e-4, "atol": 2e-5}  # of trained weights
Numbers = dict[str, np.ndarray]


def assert_same_training(build: Callable[[], keras.Model], x: Any, y: Any, *, gpus: Any = 8, **options: Any) -> Any:
    """Trains twins, one plain on one device and one in parallel, on the same global batches; compares all numbers.

    Returns:
        The parallel twin.
    """
    tolerance = options.pop("tolerance", FLOAT32)
    _, expected = train(build, x, y, gpus=None, **options)
    parallel, numbers = train(build, x, y, gpus=gpus, **options)
    assert_same_numbers(numbers, expected, **tolerance)
    return parallel


def train(
    build: Callable[[], keras.Model],
    x: Any,
    y: Any,
    *,
    compile: Callable[[], dict[str, Any]],
    gpus: Any,
    batch_size: int = 6,
    epochs: int = 1,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
    **fit: Any,
) -> tuple[Any, Numbers]:
    """The model after `fit`, `evaluate` and `predict`, and every number that these gave."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    template = build()
    model = multi_gpu_model(template, gpus, cpu_merge, cpu_relocation) if gpus else template
    model.compile(**compile())
    before = template.get_weights()
    history = model.fit(x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0, **fit)
    assert any(not np.array_equal(new, old) for new, old in zip(template.get_weights(), before, strict=True))
    numbers = {f"history {name}": np.array(values) for name, values in history.history.items()}
    numbers |= _named("variable", [v.numpy() for v in template.variables])
    numbers |= _named("optimizer", [v.numpy() for v in template.optimizer.variables])
    numbers |= _named("evaluate", model.evaluate(x, y, batch_size=batch_size, verbose=0, return_dict=True))
    numbers |= _named("predict", model.predict(x, batch_size=batch_size, verbose=0))
    return model, numbers


def _named(kind: str, values: Any) -> Numbers:
    return {f"{kind} {path}": np.asarray(value) for path, value in zip(*_leaves(values), strict=True)}


def _leaves(values: Any) -> tuple[list[str], list[Any]]:
    found = keras.tree.flatten_with_path(values)
    return [str(path) for path, _ in found], [value for _, value in found]


def assert_same_numbers(actual: Numbers, expected: Numbers, **tolerance: float) -> None:
    """Compares numbers by name: the same names, types and shapes, and values within the tolerance."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (value.dtype, value.shape), name
        np.testing.assert_allclose(actual[name], value, err_msg=name, **tolerance)


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    """Normal numbers, always the same."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")
