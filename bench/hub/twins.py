"""One model on one device, there with its rows in another order or other last digits, and on three: is it the same?"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

import multigpu

GPUS = 3
EAGERLY = keras.backend.backend() == "tensorflow"  # one device, where that takes less time than to trace
ALIKE = 10  # so many times what another order of rows changes is rounding, too
TRIES = 8  # with other last digits of the weights

Use = Callable[[keras.Model, Any, bool], list[np.ndarray]]


class Numbers(NamedTuple):
    """What a run gave, and the values of all variables before and after it."""

    given: list[np.ndarray]
    before: list[np.ndarray]
    after: list[np.ndarray]

    def off(self, expected: "Numbers") -> float:
        """By how many tolerances the furthest number is off: of 1e-4 for outputs, of 1e-3 for changes of weights."""
        changes, right = self._changes(), expected._changes()
        largest = max(map(_largest, right), default=0.0)
        rounded = [2e-7 * _largest(value) + 1e-4 * largest + 1e-9 for value in expected.after]
        offs = [_off(x, e, 1e-4 * _largest(e) + 1e-6) for x, e in zip(self.given, expected.given, strict=True)]
        offs += [_off(x, e, 1e-3 * _largest(e) + r) for x, e, r in zip(changes, right, rounded, strict=True)]
        return max(offs)

    def _changes(self) -> list[np.ndarray]:
        pairs = zip(self.before, self.after, strict=True)
        return [after - before if after.dtype.kind == "f" else after for before, after in pairs]


def compared(model: keras.Model, use: Use, rows: int) -> dict[str, Any]:
    """The verdict on a model.

    Args:
        model: with its weights, which are the same again for each run.
        use: takes the model or the parallel one, the order of rows, and whether to run eagerly; gives numbers, whose
            rows are in the first order again.
        rows: how many there are.
    """
    first = np.arange(rows)
    weights = [np.array(v.numpy()) for v in model.variables]

    def run(used: keras.Model, order: np.ndarray, eagerly: bool, before: Sequence[np.ndarray] = weights) -> Numbers:
        for variable, value in zip(model.variables, before, strict=True):
            variable.assign(value)
        given = use(used, order, eagerly)
        return Numbers(given, before, [np.array(v.numpy()) for v in model.variables])

    begin = time.perf_counter()
    try:
        one = run(model, first, EAGERLY)
    except Exception as error:
        return refusal(model) or {"verdict": "one device fails", "why": told(error)}
    permuted = run(model, first[::-1], EAGERLY).off(one)
    middle = time.perf_counter()
    try:
        several = run(multigpu.multi_gpu_model(model, gpus=GPUS), first, False)
    except Exception as error:
        return {"verdict": "refused" if is_refusal(error) else "CRASHES", "why": told(error)}
    seconds = {"one": round(middle - begin, 1), "several": round(time.perf_counter() - middle, 1)}
    off = several.off(one)
    if off > 1 and EAGERLY:  # op by op Keras knows the number of rows, and may do other things for some numbers
        one = run(model, first, False)
        off = several.off(one)
    for number in range(TRIES):  # a sign that rounding changes, as that of what a ReLU takes, changes many gradients
        if off <= max(1, ALIKE * permuted):
            break
        permuted = max(permuted, run(model, first, EAGERLY, _with_other_last_digits(weights, number)).off(one))
    verdict = "equal" if off <= 1 else "ill-conditioned" if off <= ALIKE * permuted else "DIFFERS"
    return {"verdict": verdict, "off": round(off, 3), "permuted": round(permuted, 3), "seconds": seconds}


def refusal(model: keras.Model) -> dict[str, Any] | None:
    """The verdict on a model that is refused before anything runs."""
    try:
        multigpu.multi_gpu_model(model, gpus=GPUS)
    except Exception as error:
        return {"verdict": "refused", "why": told(error)} if is_refusal(error) else None


def is_refusal(error: Exception) -> bool:
    """Whether the error is one that tells what to do."""
    return isinstance(error, ValueError) and "Expected" in str(error) and "Received" in str(error)


def told(error: Exception) -> str:
    """The error in one line, without the frame that Keras puts around it and without folders of this machine."""
    text = str(error).replace("\x1b[1m", "").replace("\x1b[0m", "")
    text = " ".join(line for line in text.split("\n") if line and not line.startswith("Exception encountered"))
    return re.sub(r'[^\s"]*site-packages/', "", f"{type(error).__name__}: {text}")[:400]


def _with_other_last_digits(values: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    digit = lambda x: np.finfo(x.dtype).eps * random.integers(-2, 3, x.shape).astype(x.dtype)  # noqa: E731
    return [x * (1 + digit(x)) if x.dtype.kind == "f" else x for x in values]


def _largest(x: np.ndarray) -> float:
    """Of the numbers that are finite."""
    return float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0)) if x.dtype.kind == "f" else 0.0


def _off(x: np.ndarray, expected: np.ndarray, tolerance: float) -> float:
    if x.shape != expected.shape or x.dtype.kind != "f":
        return 0.0 if np.array_equal(x, expected) else float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where((x == expected) | (np.isnan(x) & np.isnan(expected)), 0.0, np.abs(x - expected) / tolerance)
    return float(np.max(np.nan_to_num(off, nan=np.inf), initial=0.0))
