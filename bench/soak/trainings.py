"""Random models, each trained twice: on one device and in parallel. All numbers have to be the same."""

import gc
import time
from collections.abc import Collection, Iterator
from typing import Any

import keras
import numpy as np
from equality import FLOAT32, Numbers, assert_same_numbers

from bench.soak.draw import Draw
from bench.soak.models import activations, build, compilation
from multigpu import multi_gpu_model


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Trains twins one by one; each is a row that says how it went: same, off, refused or invalid."""
    for number in range(first, first + count):
        begin = time.process_time()
        row = twins(seed, number, without)
        if row["answer"] == "off":
            row["in float64"] = in_float64(seed, number, without)
        yield {**row, "number": number, "seconds": round(time.process_time() - begin, 2)}
        gc.collect()


def in_float64(seed: int, number: int, without: Collection[str]) -> str:
    """What the same models give where rounding is 10⁹ times smaller: a defect is still there, rounding is not."""
    compute_with("float64")
    try:
        return twins(seed, number, without, {"rtol": 1e-7, "atol": 1e-8})["answer"]
    finally:
        compute_with("float32")


def compute_with(dtype: str) -> None:
    """The type of all models that are made from now on."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)


def twins(seed: int, number: int, without: Collection[str], tolerance: dict[str, float] = FLOAT32) -> dict[str, Any]:
    """Trains one model twice and compares."""
    draw = Draw(seed, number, without)
    try:
        expected = trained(draw, parallel=False)
    except Exception as error:  # what Keras itself refuses was not a model
        return {"answer": "invalid", "why": _short(error), "kinds": draw.chosen}
    kinds = draw.chosen
    if not all(np.isfinite(value).all() for value in expected.values()):
        return {"answer": "invalid", "why": "not finite on one device", "kinds": kinds}
    try:
        actual = trained(Draw(seed, number, without), parallel=True)
        assert_same_numbers(actual, expected, **tolerance)
    except AssertionError as error:
        return {"answer": "off", "why": _short(error), "kinds": kinds}
    except Exception as error:  # all that is raised is an answer to be looked at
        return {"answer": _answer(error, kinds), "why": _short(error), "kinds": kinds}
    return {"answer": "same", "kinds": kinds}


def _answer(error: Exception, kinds: list[str]) -> str:
    """A masked mean may be refused, since it is neither a sum nor a mean over rows; nothing else here may."""
    if not isinstance(error, ValueError) or "Expected" not in str(error):
        return "error"
    return "refused, as it may be" if any("masked mean" in kind for kind in kinds) else "refused"


def trained(draw: Draw, parallel: bool) -> Numbers:
    """All numbers of one training."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(draw.number(0, 10**6))
    template = build(draw)
    kinds = activations(template)
    devices = draw.one_of([2] * 6 + [3] * 6 + [4, 5, 6, 7, 8, 8])
    places = {"cpu_merge": draw.chance(0.7), "cpu_relocation": draw.chance(0.3)}
    draw.chosen.append(f"{devices} devices")
    eager = draw.chance(0.4, "eager") and "synchronized batch normalization" not in draw.chosen  # which has no such way
    model = multi_gpu_model(template, gpus=devices, **places) if parallel else template
    model.compile(**compilation(draw, kinds), run_eagerly=eager)
    x, y, fit = data(draw, template, kinds)
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
