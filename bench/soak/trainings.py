"""Random models, each trained twice: on one device and in parallel. All numbers have to be the same."""

import functools
import gc
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import keras
import numpy as np
from equality import FLOAT32, Numbers, assert_same_numbers

from bench.soak.draw import Draw
from bench.soak.models import activations, build, compilation
from multigpu import multi_gpu_model

IN_FLOAT64 = {"rtol": 1e-7, "atol": 1e-8}


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0, drawn: type[Draw] = Draw
) -> Iterator[dict[str, Any]]:
    """Trains twins one by one; each is a row that says how it went: same, off, refused or invalid.

    What is off in float32 is off, but where rounding is all of it: "same in float64". And but where it is so at a kink,
    such as that of |x| at 0: then one device is off from itself, too, after a change in the last digit of its inputs.
    """
    for number in range(first, first + count):
        begin = time.process_time()
        draw = functools.partial(drawn, seed, number, without)
        row = twins(draw)
        if row["answer"] == "off":
            row["answer"] = in_float64(draw)
        yield {**row, "number": number, "seconds": round(time.process_time() - begin, 2)}
        gc.collect()


def in_float64(draw: Callable[[], Draw]) -> str:
    """What the same models give where rounding is 10⁹ times smaller: a defect is still there, rounding is not."""
    compute_with("float64")
    try:
        answer = twins(draw, IN_FLOAT64)["answer"]
        if answer != "off":
            return "same in float64" if answer == "same" else "off"
        one, other = (trained(draw(), parallel=False, nudge=nudge) for nudge in (0, 1e-7))
    finally:
        compute_with("float32")
    try:
        assert_same_numbers(one, other, **FLOAT32)  # some layers of Keras compute in float32 all the same
    except AssertionError:
        return "at a kink"
    return "off"


def compute_with(dtype: str) -> None:
    """The type of all models that are made from now on."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)


def twins(draw: Callable[[], Draw], tolerance: dict[str, float] = FLOAT32) -> dict[str, Any]:
    """Trains one model twice and compares."""
    plain, in_parallel = draw(), draw()
    try:
        expected = trained(plain, parallel=False)
    except Exception as error:  # what Keras itself refuses was not a model
        return {"answer": "invalid", "why": _short(error), "kinds": plain.chosen}
    kinds = plain.chosen
    finite = all(np.isfinite(value).all() for value in expected.values())
    try:
        actual = trained(in_parallel, parallel=True)
        assert_same_numbers(actual, expected, equal_nan=not finite, **tolerance)
    except AssertionError as error:
        return {"answer": "off", "why": _short(error), "kinds": kinds}
    except Exception as error:  # all that is raised is an answer to be looked at
        return {"answer": _answer(error, kinds), "why": _short(error), "kinds": kinds}
    return {"answer": "same" if finite else "same, with NaN in the same places", "kinds": kinds}


def _answer(error: Exception, kinds: list[str]) -> str:
    """A masked mean may be refused, since it is neither a sum nor a mean over rows; nothing else here may."""
    if not isinstance(error, ValueError) or "Expected" not in str(error):
        return "error"
    return "refused, as it may be" if any("masked mean" in kind for kind in kinds) else "refused"


def trained(draw: Draw, parallel: bool, nudge: float = 0.0) -> Numbers:
    """All numbers of one training, on inputs that are changed by so little."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(draw.number(0, 10**6))
    draw.in_parallel = parallel
    template = build(draw)
    kinds = activations(template)
    gpus = draw.gpus()
    places = {"cpu_merge": draw.chance(0.7), "cpu_relocation": draw.chance(0.3)}
    eager = draw.chance(0.4, "eager") and "synchronized batch normalization" not in draw.chosen  # which has no such way
    model = multi_gpu_model(template, gpus=gpus, **places) if parallel else template
    model.compile(**compilation(draw, kinds), run_eagerly=eager)
    x, y, fit = data(draw, template, kinds)
    if nudge:
        x = keras.tree.map_structure(lambda values: nudged(values, nudge), x)
    history = model.fit(x, y, shuffle=False, verbose=0, **fit)
    numbers = {
        **{f"history {name}": np.asarray(values) for name, values in history.history.items()},
        **_values("variable", template.variables),
        **_values("optimizer", model.optimizer.variables),
    }
    if draw.chance(0.4, "predict"):
        predicted = keras.tree.flatten(model.predict(x, len(keras.tree.flatten(x)[0]), verbose=0))
        numbers |= {f"predicted {place}": value for place, value in enumerate(predicted)}
    return numbers


def nudged(values: np.ndarray, by: float) -> np.ndarray:
    """Numbers, each a little larger or smaller."""
    if values.dtype != "float32":
        return values
    return values * (1 + by * np.random.default_rng(0).choice([-1, 1], values.shape))


def data(draw: Draw, template: keras.Model, kinds: list[str]) -> tuple[Any, Any, dict[str, Any]]:
    """Inputs and targets of two to four steps, the last one seldom full, and how they are fitted."""
    batch_size, steps = draw.one_of([1, 2, 3, 5, 8, 12]), draw.number(2, 4)
    count = batch_size * (steps - 1) + draw.number(1, batch_size)
    inner = getattr(template, "inner", template)
    x = [_rows_of(draw, count, tensor) for tensor in inner.inputs]
    y = [_targets(draw, count, kind) for kind in kinds]
    fit: dict[str, Any] = {"batch_size": batch_size, "epochs": draw.one_of([1, 1, 1, 1, 2])}
    if draw.chance(0.3, "sample weights"):
        weights = [draw.random.uniform(0, 2, count).astype("float32") for _ in kinds]
        fit["sample_weight"] = weights if len(kinds) > 1 else weights[0]
    elif kinds == ["softmax"] and draw.chance(0.5, "class weights"):
        fit["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0}
    if draw.chance(0.1, "validation"):
        fit["validation_data"] = (_alone(x), _alone(y))
    return _alone(x), _alone(y), fit


def _alone(values: list[Any]) -> Any:
    return values if len(values) > 1 else values[0]


def _rows_of(draw: Draw, count: int, tensor: Any) -> np.ndarray:
    shape = (count, *tensor.shape[1:])
    if tensor.dtype == "int32":
        return draw.random.integers(0, 7, shape).astype("int32")
    values = draw.random.normal(size=shape).astype("float32")
    if len(shape) == 3:
        values[draw.random.random(shape[:2]) < 0.2] = 0  # what a Masking layer leaves out
    return values


def _targets(draw: Draw, count: int, kind: str) -> np.ndarray:
    if kind == "linear":
        return draw.random.normal(size=(count, 2)).astype("float32")
    below = {"softmax": 3, "sigmoid": 2}[kind]
    return draw.random.integers(0, below, (count, 1)).astype("int32" if kind == "softmax" else "float32")


def _values(prefix: str, variables: list[Any]) -> Numbers:
    return {f"{prefix} {place} {variable.path}": variable.numpy() for place, variable in enumerate(variables)}


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
