"""Trace one row forward through a template: the layers that are called, their work, and the tensors between them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.private_api.graphs import LOOPS, body_of
from multigpu.engines.tensorflow.profiling.activation_memory import tensor_bytes
from multigpu.engines.tensorflow.profiling.float_operations import Profile, total, work_of
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, LayerCalls, all_calls
from multigpu.engines.tensorflow.replicas.parts import Parts, scopes_noted
from multigpu.engines.tensorflow.replicas.scope import inside_replica
from multigpu.private_api.layers import sublayers

SHAPES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")  # ops that read only the shape of a tensor


class Piece(NamedTuple):
    """A call of a layer, with the numbers of its ops and of the ops after it that are in no layer.

    For a call in a nested model, the name of that model and a slash precede its own name.
    """

    name: str
    call: LayerCall
    ops: range


class LayerTrace:
    """The trace of a template in training, forward. It is not run.

    Attributes:
        pieces: the calls in order. The calls of a nested model are listed one by one, a call of another layer as one.
            The last piece is the template itself, if it has weights that are in no layer, or calls no layer.
    """

    def __init__(self, template: keras.Model, specs: object) -> None:
        """Trace a template with such inputs."""
        self._template = template
        tf.function(self._run, autograph=False).get_concrete_function(specs)
        self._profile = Profile(self._ops[0].graph)
        self._sizes = _sizes_by_life(self._ops, self._inputs)
        calls = [*_named(self._calls.root)]
        in_layers = {id(weight) for _, call in calls for weight in call.layer.weights}
        if not calls or any(id(weight) not in in_layers for weight in template.weights):
            calls.append((template.name, LayerCall(template, ops=range(len(self._ops), len(self._ops)))))
        begins = [0, *(call.ops.start for _, call in calls[1:]), len(self._ops)]
        spans = itertools.starmap(range, itertools.pairwise(begins))
        self.pieces = [Piece(name, call, ops) for (name, call), ops in zip(calls, spans, strict=True)]

    def work(self, piece: Piece) -> int | None:
        """Return the floating-point operations of a piece. Loops of recurrent layers count as often as they run."""
        skipped: set[int] = set()
        in_loops: list[int | None] = []
        for call in all_calls(piece.call):
            loop = self._loop_of(call)
            if loop is not None:  # before the loop, Keras calls the cell once to get its output
                skipped |= {loop, *(number for inner in call.inner for number in inner.ops)}
                in_loops.append(_work_of_loop(self._ops[loop], call))
        return total([self._profile.work(self._ops[n] for n in piece.ops if n not in skipped), *in_loops])

    def crossing(self, piece: Piece) -> int:
        """Return the bytes that come from this piece and those before it, and are needed after it."""
        cut = piece.ops.stop
        return sum(size for life, size in self._sizes if life.start < cut <= life.stop)

    def _loop_of(self, call: LayerCall) -> int | None:
        """Return the number of the loop that a recurrent layer makes."""
        if not isinstance(call.layer, keras.layers.RNN):
            return None
        return next((number for number in call.ops if self._ops[number].type in LOOPS), None)

    def _run(self, inputs: object) -> None:
        self._inputs, self._calls = tf.nest.flatten(inputs, expand_composites=True), LayerCalls(self._template)
        layers = sublayers(self._template)
        # a kernel of cuDNN is opaque
        plain = entered(replaced(layer, "use_cudnn", False) for layer in layers if hasattr(layer, "use_cudnn"))
        with plain, scopes_noted(Parts((), ()).scope), self._calls.noted(layers), inside_replica():
            self._template(inputs, training=True)
        self._ops = tf.compat.v1.get_default_graph().get_operations()


def _named(call: LayerCall, prefix: str = "") -> Iterator[tuple[str, LayerCall]]:
    for inner in call.inner:
        name = prefix + inner.layer.name
        if isinstance(inner.layer, keras.Model) and inner.inner:
            yield from _named(inner, f"{name}/")
        else:
            yield name, inner


def _work_of_loop(loop: tf.Operation, call: LayerCall) -> int | None:
    """Return the work of a recurrent layer's loop, which goes through the second axis of its input."""
    sequences = call.args[0] if call.args else call.kwargs["sequences"]
    of_one, times = work_of(body_of(loop, "body")), sequences.shape[1]
    return None if of_one is None or times is None else times * of_one


def _sizes_by_life(ops: Sequence[tf.Operation], inputs: Sequence[tf.Tensor]) -> list[tuple[range, int]]:
    """Return for each tensor that depends on the inputs its first op, its last op, and its bytes."""
    number_of = {op.name: number for number, op in enumerate(ops)}
    of_inputs = {x.ref() for x in inputs}
    sizes = []
    for number, op in enumerate(ops):
        if op.type in SHAPES or not any(x.ref() in of_inputs for x in op.inputs):
            continue
        for x in op.outputs:
            of_inputs.add(x.ref())
            readers = [number_of[reader.name] for reader in x.consumers() if reader.name in number_of]
            sizes.append((range(number, max(readers, default=number)), tensor_bytes(x)))
    return sizes
