"""Compare numbers that should be equal: how much they differ, and how much of this is rounding."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

ROUNDINGS = 1000  # number of last digits by which sums in another order may differ
ROUNDINGS_OF_HALF = 2  # the same for a type with about three digits, in which another run shows what rounding does
AMPLIFIED = 30  # times the difference of another run, or of one with other last digits: noise, an ill-conditioned model
AMPLIFIED_OF_HALF = 3  # the same for a type with about three digits


class Difference(NamedTuple):
    """The largest difference between two tensors, and the largest value of the second one."""

    difference: float
    largest: float

    @property
    def relative(self) -> float:
        """The difference divided by the largest value."""
        return self.difference / self.largest if self.largest else self.difference


def differences(actual: Mapping[str, tf.Tensor], expected: Mapping[str, tf.Tensor]) -> dict[str, Difference]:
    """Return the difference of each tensor (dense, ragged or sparse) by name."""
    return {name: difference(actual[name], expected[name]) for name in expected}


def difference(actual: tf.Tensor, expected: tf.Tensor) -> Difference:
    """Return how much two tensors differ. Other shapes differ infinitely, texts by 1."""
    parts = [tf.nest.flatten(x, expand_composites=True) for x in (actual, expected)]
    each = [_difference(np.asarray(a), np.asarray(e)) for a, e in zip(*parts, strict=True)]
    return max(each, key=lambda found: found.relative)


def _difference(actual: np.ndarray, expected: np.ndarray) -> Difference:
    if actual.shape != expected.shape:
        return Difference(np.inf, 1.0)
    if expected.size == 0:
        return Difference(0.0, 0.0)
    if expected.dtype.kind in "OSU":
        return Difference(float(np.any(actual != expected)), 1.0)
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, e = actual.astype(kind), expected.astype(kind)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == e) | (np.isnan(a) & np.isnan(e)), 0.0, np.abs(a - e))
    finite = np.abs(e[np.isfinite(e)])
    return Difference(float(np.nan_to_num(apart, nan=np.inf).max()), float(finite.max(initial=0.0)))


def last_digit(types: Iterable[tf.DType]) -> float:
    """Return the relative change of the last digit, in the least precise of these float types of 16 bits or more."""
    kinds = {t for t in types if t.is_floating and t.size > 1}  # numbers of 8 bits have scales beside them
    return max((float(np.finfo(t.as_numpy_dtype).eps) if t != tf.bfloat16 else 2.0**-7 for t in kinds), default=0.0)


def rounding(digit: float) -> float:
    """Return the relative difference that sums in another order may make, given that of a last digit."""
    return digit * (ROUNDINGS_OF_HALF if is_half(digit) else ROUNDINGS)


def amplified(noise: float, digit: float) -> float:
    """Return the relative difference that slices may make, given that of runs on all rows."""
    return noise * (AMPLIFIED_OF_HALF if is_half(digit) else AMPLIFIED)


def is_half(digit: float) -> bool:
    """Return whether a type with this last digit has about three digits."""
    return digit > 1e-4
