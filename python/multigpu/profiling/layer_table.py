"""What each layer stores, computes and gives: a table that shows where a model can be cut."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras
import tensorflow as tf

from multigpu.base.table import Table, megabytes, millions
from multigpu.engines.tensorflow.profiling.activation_memory import specs_of, tensor_bytes
from multigpu.engines.tensorflow.profiling.float_operations import total
from multigpu.engines.tensorflow.profiling.layer_trace import LayerTrace, Piece
from multigpu.engines.tensorflow.replicas.layer_calls import tensors_of
from multigpu.engines.tensorflow.weights.place_locate import num_bytes


@dataclass(frozen=True)
class LayerEstimate:
    """One call of a layer: what it stores and computes, and what would travel if the model were cut behind it.

    What is computed outside of layers counts with the layer before it. Sizes are in bytes.

    Attributes:
        name: of the layer; of one in a nested model, after the name of that model and a slash.
        weights: its weights and state, where they are used first: 0 in a second call.
        weights_share: the weights up to here, as a share of all.
        work: floating-point operations of one row, forward, as TensorFlow's profiler counts them: two for a
            multiplication and an addition. None where nobody counts them, as in a branch or in a loop of one's own.
        work_share: the work up to here, as a share of all; None where a layer's work is None.
        output: what the layer gives for one row.
        crossing: what this layer and those before it have made of one row, and those behind it need. That much travels
            if the model is cut here, and as much comes back as gradients.
    """

    name: str
    weights: int
    weights_share: float
    work: int | None
    work_share: float | None
    output: int
    crossing: int


class LayerTable(Table[LayerEstimate]):
    """One row per call of a layer, in the order of the calls, which prints as a table."""

    __slots__ = ()
    of = LayerEstimate
    head = ("layer", "weights", "so far", "work per row", "so far", "output per row", "cut behind it")

    def cells(self, row: LayerEstimate) -> list[str]:
        """A row as words."""
        return [
            row.name,
            megabytes(row.weights),
            f"{row.weights_share:.1%}",
            millions(row.work, "MFLOP"),
            "-" if row.work_share is None else f"{row.work_share:.1%}",
            megabytes(row.output),
            megabytes(row.crossing),
        ]


def layer_table(template: keras.Model) -> LayerTable:
    """The table of a template, from a trace of one row.

    Raises:
        ValueError: the template does not tell the shapes of its inputs.
    """
    specs = specs_of(template, 1)
    if specs is None:
        raise ValueError(
            "Expected a template that knows the shapes of its inputs, so that its layers can be traced. Received: "
            f"{template.name!r}, a {type(template).__name__} without `inputs`. Use a functional model, or a Sequential "
            "with an `Input`."
        )
    trace = LayerTrace(template, specs)
    weights, work = _weights(trace.pieces), [trace.work(piece) for piece in trace.pieces]
    return LayerTable(
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
    )


def _weights(pieces: Sequence[Piece]) -> list[int]:
    """Bytes of the weights of each piece that no piece before it has."""
    seen: set[int] = set()
    sizes = []
    for piece in pieces:
        new = {id(variable): num_bytes(variable) for variable in piece.call.layer.weights if id(variable) not in seen}
        sizes.append(sum(new.values()))
        seen |= new.keys()
    return sizes


def _share(numbers: Sequence[int | None], last: int) -> float | None:
    """What the numbers up to one of them are of the sum of all; None where one is not known."""
    every, until = total(numbers), total(numbers[: last + 1])
    return None if every is None or until is None else until / max(every, 1)
