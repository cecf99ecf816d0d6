"""Match the weights of a model with those that a file lists."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np

from multigpu.base.refusal import refuse
from multigpu.private_api.layers import finish_state
from multigpu.saving.weight_lists import Listed

Pairs = list[tuple[keras.Variable, np.ndarray]]


class Mismatch(NamedTuple):
    """A weight that does not fit, for the message."""

    what: str
    expected: str
    found: str

    def error(self) -> ValueError:
        """The error that names the layer, the expected and the received shape."""
        return refuse(
            f"{self.expected} for {self.what}",
            f"{self.found} in the file",
            "Load it into a model of the same structure, or pass `skip_mismatch=True` to skip layers that do not fit.",
        )


def saved_order(layer: keras.Layer) -> list[keras.Variable]:
    """Return the weights of a layer or model in the order of such files: trainable weights first."""
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def own_weights(model: keras.Model) -> list[keras.Variable]:
    """Return the weights of a model that belong to none of its layers."""
    of_layers = {id(weight) for layer in model.layers for weight in layer.weights}
    return [weight for weight in saved_order(model) if id(weight) not in of_layers]


def pair(weights: Sequence[keras.Variable], listed: Sequence[Listed], what: str) -> Pairs | Mismatch:
    """Pair the weights of one layer with those in the file: by name if names are unique, otherwise by order.

    The order alone may be wrong: it changes when a part of a nested model is frozen.
    """
    if len(weights) != len(listed):
        return Mismatch(what, f"{len(weights)} weights", f"{len(listed)}")
    by_name = (_by_name(weights, listed, short) for short in (last_parts, plain_name))
    for order in (*by_name, _by_role(weights, listed), listed):
        if order is not None and _shapes_fit(weights, order):
            return [(weight, np.asarray(one.array)) for weight, one in zip(weights, order, strict=True)]
    weight, one = next((w, one) for w, one in zip(weights, listed, strict=True) if tuple(w.shape) != one.array.shape)
    expected, found = f"shape {tuple(weight.shape)}", f"shape {one.array.shape} ({one.name!r})"
    return Mismatch(f"weight {weight.path!r} of {what}", expected, found)


def _by_name(
    weights: Sequence[keras.Variable], listed: Sequence[Listed], short: Callable[[str], str]
) -> list[Listed] | None:
    """Return the listed weights in the order of the model's, if their names are unique."""
    found = {short(one.name): one for one in listed}
    wanted = [short(weight.path) for weight in weights]
    return [found[name] for name in wanted] if len(found) == len(listed) and set(wanted) == set(found) else None


def _by_role(weights: Sequence[keras.Variable], listed: Sequence[Listed]) -> list[Listed] | None:
    """Return the listed weights with the k-th of each role ("kernel") at the place of the model's k-th."""
    left: dict[str, list[Listed]] = {}
    for one in listed:
        left.setdefault(role(one.name), []).append(one)
    if sorted(role(weight.path) for weight in weights) != sorted(role(one.name) for one in listed):
        return None
    return [left[role(weight.path)].pop(0) for weight in weights]


def _shapes_fit(weights: Sequence[keras.Variable], listed: Sequence[Listed]) -> bool:
    return all(tuple(w.shape) == one.array.shape for w, one in zip(weights, listed, strict=True))


def last_parts(name: str) -> str:
    """Return the layer and the role of a weight: `"net/conv2d_3/kernel:0"` → `"conv2d_3/kernel"`."""
    return "/".join(name.removesuffix(":0").split("/")[-2:])


def plain_name(name: str) -> str:
    """Return the same without Keras' counters: `"net/conv2d_3/kernel:0"` → `"conv2d/kernel"`."""
    return "/".join(without_counter(part) for part in last_parts(name).split("/"))


def role(name: str) -> str:
    """Return the role of a weight in its layer: `"net/conv2d_3/kernel:0"` → `"kernel"`."""
    return without_counter(last_parts(name).rsplit("/", 1)[-1])


def without_counter(name: str) -> str:
    """Return a name without the number by which Keras distinguishes layers of one kind."""
    return re.sub(r"_\d+$", "", name)


def assign(pairs: Pairs, model: keras.Model) -> None:
    """Give weights of a model their values. Each stays on the device that owns it."""
    for weight, value in pairs:
        weight.assign(value)
    finish_state(model)
