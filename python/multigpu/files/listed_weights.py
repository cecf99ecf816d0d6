"""Weights as an HDF5 file of Keras lists them: by layer, in order; and how they pair with those of a model."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import h5py
import keras
import numpy as np

Pairs = list[tuple[keras.Variable, np.ndarray]]
TOP_LEVEL = "top_level_model_weights"
ATTRIBUTE_BYTES = 64_000  # a little less than HDF5 can keep as one attribute


class Listed(NamedTuple):
    """One array in the file."""

    name: str  # as in the list of its layer, such as "conv/kernel:0"
    array: h5py.Dataset


class Mismatch(NamedTuple):
    """What does not fit, for the message."""

    what: str
    expected: str
    found: str

    def error(self) -> ValueError:
        """The error that names layer, expected and found."""
        return ValueError(
            f"Expected {self.expected} for {self.what}. Received {self.found} in the file. Load it into a model of the "
            "same structure, or pass `skip_mismatch=True` to leave out what does not fit."
        )


def listed_layers(group: h5py.Group) -> dict[str, list[Listed]]:
    """The layers that a file lists, with their weights, in its order.

    Raises:
        ValueError: a list names what is not there.
    """
    return {name: _listed_weights(group, name) for name in listed_names(group, "layer_names")}


def list_names(group: h5py.Group, name: str, texts: Sequence[str]) -> None:
    """Writes a list of names, in several parts if it is too long for one."""
    encoded = np.array([text.encode() for text in texts])
    num_parts = -(-encoded.nbytes // ATTRIBUTE_BYTES)
    if num_parts <= 1:
        group.attrs[name] = encoded
        return
    for number, part in enumerate(np.array_split(encoded, num_parts)):
        group.attrs[f"{name}{number}"] = part


def listed_names(group: h5py.Group, name: str) -> list[str]:
    """Reads such a list."""
    parts = [name] if name in group.attrs else []
    while name not in group.attrs and f"{name}{len(parts)}" in group.attrs:
        parts.append(f"{name}{len(parts)}")
    texts = [text for part in parts for text in np.ravel(group.attrs[part])]
    return [text.decode("utf8", "replace") if isinstance(text, bytes) else str(text) for text in texts]


def _listed_weights(group: h5py.Group, layer: str) -> list[Listed]:
    within = group.get(layer)
    if not isinstance(within, h5py.Group):
        raise ValueError(f"Expected the layers that the file lists to be in it. Received a file without {layer!r}.")
    listed = [Listed(name, within.get(name)) for name in listed_names(within, "weight_names")]
    missing = [one.name for one in listed if not isinstance(one.array, h5py.Dataset)]
    if missing:
        raise ValueError(f"Expected the weights that the file lists to be in it. Received a file without {missing}.")
    return listed


def top_level(group: h5py.Group) -> list[Listed]:
    """Weights of the model that belong to none of its layers."""
    return _listed_weights(group, TOP_LEVEL) if TOP_LEVEL in group else []


# Pairing --------------------------------------------------------------------------------------------------------------


def saved_order(layer: keras.Layer) -> list[keras.Variable]:
    """The weights of a layer or model in the order of such files: the trainable ones first."""
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def own_weights(model: keras.Model) -> list[keras.Variable]:
    """The weights of a model that belong to none of its layers."""
    of_layers = {id(weight) for layer in model.layers for weight in layer.weights}
    return [weight for weight in saved_order(model) if id(weight) not in of_layers]


def pair(weights: Sequence[keras.Variable], listed: Sequence[Listed], what: str) -> Pairs | Mismatch:
    """Pairs the weights of one layer with those in the file: by name if names tell them apart, or else by order.

    The order alone may deceive: it changes when a part of a nested model is frozen.
    """
    if len(weights) != len(listed):
        return Mismatch(what, f"{len(weights)} weights", f"{len(listed)}")
    orders = [_by_name(weights, listed, last_parts), _by_name(weights, listed, plain_name), list(listed)]
    orders.append(_by_role(weights, listed))
    for fits in (_roles_fit, _shapes_fit):
        for order in orders:
            if order is not None and _shapes_fit(weights, order) and fits(weights, order):
                return [(weight, np.asarray(one.array)) for weight, one in zip(weights, order, strict=True)]
    weight, one = next((w, one) for w, one in zip(weights, listed, strict=True) if tuple(w.shape) != one.array.shape)
    expected, found = f"shape {tuple(weight.shape)}", f"shape {one.array.shape} ({one.name!r})"
    return Mismatch(f"weight {weight.path!r} of {what}", expected, found)


def _by_name(
    weights: Sequence[keras.Variable], listed: Sequence[Listed], short: Callable[[str], str]
) -> list[Listed] | None:
    """The listed weights in the order of the model's, if their names tell them apart."""
    found = {short(one.name): one for one in listed}
    wanted = [short(weight.path) for weight in weights]
    return [found[name] for name in wanted] if len(found) == len(listed) and set(wanted) == set(found) else None


def _by_role(weights: Sequence[keras.Variable], listed: Sequence[Listed]) -> list[Listed] | None:
    """The listed weights with the k-th of each role ("kernel") where the model has its k-th."""
    left: dict[str, list[Listed]] = {}
    for one in listed:
        left.setdefault(role(one.name), []).append(one)
    if sorted(role(weight.path) for weight in weights) != sorted(role(one.name) for one in listed):
        return None
    return [left[role(weight.path)].pop(0) for weight in weights]


def _roles_fit(weights: Sequence[keras.Variable], listed: Sequence[Listed]) -> bool:
    return all(role(weight.path) == role(one.name) for weight, one in zip(weights, listed, strict=True))


def _shapes_fit(weights: Sequence[keras.Variable], listed: Sequence[Listed]) -> bool:
    return all(tuple(w.shape) == one.array.shape for w, one in zip(weights, listed, strict=True))


def last_parts(name: str) -> str:
    """The layer and the role of a weight: `"net/conv2d_3/kernel:0"` → `"conv2d_3/kernel"`."""
    return "/".join(name.removesuffix(":0").split("/")[-2:])


def plain_name(name: str) -> str:
    """The same without Keras' counters: `"net/conv2d_3/kernel:0"` → `"conv2d/kernel"`."""
    return "/".join(without_counter(part) for part in last_parts(name).split("/"))


def role(name: str) -> str:
    """What a weight is to its layer: `"net/conv2d_3/kernel:0"` → `"kernel"`."""
    return without_counter(last_parts(name).rsplit("/", 1)[-1])


def without_counter(name: str) -> str:
    """A name without the number by which Keras tells layers of one kind apart."""
    return re.sub(r"_\d+$", "", name)


def assign(pairs: Pairs) -> None:
    """Gives weights their values; each stays on the device that owns it."""
    for weight, value in pairs:
        weight.assign(value)
