"""Find the parts of a template before it runs: their devices, and the weights that each of them stores."""

from collections.abc import Sequence
from typing import NamedTuple

import keras

from multigpu.base.refusal import refuse
from multigpu.private_api.functional import run_instead
from multigpu.private_api.layers import sublayers


class Placement(NamedTuple):
    """A record that a layer or operation was called in a scope of `on_device()`.

    Attributes:
        number: the number of this call among all such calls in this process.
        device: name of the device.
    """

    number: int
    device: str


def part_devices(model: keras.Layer) -> tuple[str, ...]:
    """Return the devices that a model names for its parts, in the order in which it named them first."""
    placements = [*(placement for _, placement in placed_calls(model)), *(_kept_by(layer) for layer in _layers(model))]
    return tuple(dict.fromkeys(placement.device for placement in sorted(p for p in placements if p)))


def placed_calls(model: keras.Layer) -> list[tuple[str, Placement]]:
    """Return the placed calls inside of a model: the names of the layers and operations, and their devices."""
    return [(each.name, call.placement) for each in _operations(model) for call in run_instead(each)]


def home_devices(model: keras.Layer) -> dict[int, str]:
    """Return the device that a model names for each weight, by the weight's id: of the layer's first placement."""
    homes: dict[int, str] = {}
    placed = [(placement, layer) for layer in _layers(model) if (placement := _kept_by(layer))]
    for placement, layer in sorted(placed, key=lambda pair: pair[0]):
        for variable in layer.variables:
            homes.setdefault(id(variable), placement.device)
    return homes


def home_parts(model: keras.Layer, variables: Sequence[keras.Variable], parts: Sequence[str]) -> list[int]:
    """Return the part that stores each variable. A variable of no part, as of a head, belongs to the last one."""
    homes = home_devices(model)
    last = len(parts) - 1
    return [parts.index(homes[id(v)]) if homes.get(id(v)) in parts else last for v in variables]


def _layers(model: keras.Layer) -> list[keras.Layer]:
    return [model, *sublayers(model)]


def _operations(model: keras.Layer) -> list[keras.Operation]:
    graphs = [layer for layer in _layers(model) if isinstance(layer, keras.Function)]
    return [*sublayers(model), *(operation for graph in graphs for operation in graph.operations)]


def _kept_by(layer: keras.Layer) -> Placement | None:
    return layer.__dict__.get("kept_by")


def check_unplaced(model: keras.Layer) -> None:
    """Raise a ValueError for a model in which calls are placed on devices."""
    for name, _ in placed_calls(model):
        raise parts_in_parts(name)


def parts_in_parts(name: str) -> ValueError:
    """Return the error for a device inside of a model that is itself spread, or placed, as a whole."""
    return refuse(
        "a model without `on_device()`, because it runs as a whole on each of its devices",
        f"one in which {name!r} is called in `on_device()`",
        "Build it without that; or give each replica a group of devices, one for each part, as in "
        "`multi_gpu_model(model, gpus=[['GPU:0', 'GPU:1'], ['GPU:2', 'GPU:3']])`.",
    )
