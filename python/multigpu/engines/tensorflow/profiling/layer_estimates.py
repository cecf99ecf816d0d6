"""Estimate each layer's weights, work and output, from a trace of one row."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.profiling.activation_memory import specs_of, tensor_bytes
from multigpu.engines.tensorflow.profiling.float_operations import total
from multigpu.engines.tensorflow.profiling.layer_trace import LayerTrace, Piece
from multigpu.engines.tensorflow.replicas.layer_calls import tensors_of
from multigpu.engines.tensorflow.weights.place_locate import num_bytes
from multigpu.plan.estimates import LayerEstimate


def estimate_layers(template: keras.Model) -> list[LayerEstimate]:
    """Return the weights, work and output of each call of a layer, from a trace of one row.

    Raises:
        ValueError: the shapes of the template's inputs are unknown.
    """
    specs = specs_of(template, 1)
    if specs is None:
        raise refuse(
            "a template that knows the shapes of its inputs, so that its layers can be traced",
            f"{template.name!r}, a {type(template).__name__} without `inputs`",
            "Use a functional model, or a Sequential with an `Input`.",
        )
    trace = LayerTrace(template, specs)
    weights, work = _weights(trace.pieces), [trace.work(piece) for piece in trace.pieces]
    return [
        LayerEstimate(
            name=piece.name,
            weights=weights[number],
            weights_share=_share(weights, number) or 0.0,
            work=work[number],
            work_share=_share(work, number),
            output=sum(map(tensor_bytes, tf.nest.flatten(tensors_of(piece.call.outputs), expand_composites=True))),
            crossing=trace.crossing(piece),
        )
        for number, piece in enumerate(trace.pieces)
    ]


def _weights(pieces: Sequence[Piece]) -> list[int]:
    """Return the bytes of the weights of each piece that no earlier piece has."""
    seen: set[int] = set()
    sizes = []
    for piece in pieces:
        new = {id(variable): num_bytes(variable) for variable in piece.call.layer.weights if id(variable) not in seen}
        sizes.append(sum(new.values()))
        seen |= new.keys()
    return sizes


def _share(numbers: Sequence[int | None], last: int) -> float | None:
    """Return the share of the sum that is reached at each number. None if one is unknown."""
    every, until = total(numbers), total(numbers[: last + 1])
    return None if every is None or until is None else until / max(every, 1)
