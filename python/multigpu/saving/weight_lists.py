"""Read and write the lists of weights in an HDF5 file of Keras: by layer, in order."""

from collections.abc import Sequence
from typing import NamedTuple

import h5py
import numpy as np

from multigpu.base.refusal import refuse

TOP_LEVEL = "top_level_model_weights"
ATTRIBUTE_BYTES = 64_000  # a little less than the limit of HDF5 for one attribute


class Listed(NamedTuple):
    """One array in the file."""

    name: str  # the name in the list of its layer, such as "conv/kernel:0"
    array: h5py.Dataset


def listed_layers(group: h5py.Group) -> dict[str, list[Listed]]:
    """Return the layers that a file lists, with their weights, in the file's order.

    Raises:
        ValueError: a list names an array that does not exist.
    """
    return {name: listed_weights(group, name) for name in listed_names(group, "layer_names")}


def list_names(group: h5py.Group, name: str, texts: Sequence[str]) -> None:
    """Write a list of names, in several parts if it is too long for one."""
    encoded = np.array([text.encode() for text in texts])
    num_parts = -(-encoded.nbytes // ATTRIBUTE_BYTES)
    if num_parts <= 1:
        group.attrs[name] = encoded
        return
    for number, part in enumerate(np.array_split(encoded, num_parts)):
        group.attrs[f"{name}{number}"] = part


def listed_names(group: h5py.Group, name: str) -> list[str]:
    """Read such a list."""
    parts = [name] if name in group.attrs else []
    while name not in group.attrs and f"{name}{len(parts)}" in group.attrs:
        parts.append(f"{name}{len(parts)}")
    texts = [text for part in parts for text in np.ravel(group.attrs[part])]
    return [text.decode("utf8", "replace") if isinstance(text, bytes) else str(text) for text in texts]


def listed_weights(group: h5py.Group, layer: str) -> list[Listed]:
    """Return the weights of a layer, or of the model itself, in the file's order."""
    within = group.get(layer)
    if not isinstance(within, h5py.Group):
        raise refuse("the layers that the file lists to be in it", f"a file without {layer!r}")
    listed = [Listed(name, within.get(name)) for name in listed_names(within, "weight_names")]
    missing = [one.name for one in listed if not isinstance(one.array, h5py.Dataset)]
    if missing:
        raise refuse("the weights that the file lists to be in it", f"a file without {missing}")
    return listed
