"""Make a separate function of some ops of a trace."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf


class StageFunction:
    """Makes functions of the ops of one trace.

    The ops of a stage have only devices that were named inside of it, so they run on the device of the call.
    """

    def __init__(self, graph: tf.Graph, captured: Mapping[str, tf.Tensor], differentiated: bool) -> None:
        """Store the trace.

        Args:
            graph: the graph of the trace.
            captured: the captured tensors, by the names of the tensors inside.
            differentiated: whether the trace contains its gradients. The stages then need no gradients, which would
                look for tensors of the trace.
        """
        self._dropped = ("_class", "_gradient_op_type") if differentiated else ("_class",)
        definition = graph.as_graph_def()
        self._nodes = {node.name: node for node in definition.node}
        self._frame = tf.compat.v1.GraphDef(versions=definition.versions, library=definition.library)
        self._captured = captured

    def trace(
        self, ops: Sequence[tf.Operation], takes: Sequence[tf.Tensor], gives: Sequence[tf.Tensor]
    ) -> Callable[..., list[tf.Tensor]]:
        """Return a function of the tensors `takes` that runs the ops and returns the tensors `gives`."""
        definition = self._definition(ops)
        around = {x.name: self._captured[x.name] for op in ops for x in op.inputs if x.name in self._captured}

        def stage(*given: tf.Tensor) -> list[tf.Tensor]:
            known = {x.name: value for x, value in zip(takes, given, strict=True)}
            graph: Any = tf.compat.v1.get_default_graph()
            known.update((name, graph.capture(outer)) for name, outer in around.items())
            made = tf.graph_util.import_graph_def(
                definition, input_map=known, return_elements=[x.name for x in gives], name="stage"
            )
            for x, of_trace in zip(made, gives, strict=True):
                x.set_shape(of_trace.shape)  # code may have set it in the trace
            return made

        specs = [tf.TensorSpec(x.shape, x.dtype) for x in takes]
        with tf.device(None):
            return tf.function(stage, autograph=False).get_concrete_function(*specs)

    def _definition(self, ops: Sequence[tf.Operation]) -> tf.compat.v1.GraphDef:
        """Return the ops without links to others: the order of side effects, and gradients to where their op is."""
        names = {op.name for op in ops}
        definition = tf.compat.v1.GraphDef()
        definition.CopyFrom(self._frame)
        for op in ops:
            node = definition.node.add()
            node.CopyFrom(self._nodes[op.name])
            kept = [name for name in node.input if not name.startswith("^") or name[1:] in names]
            del node.input[:]
            node.input.extend(kept)
            for name in self._dropped:
                node.attr.pop(name, None)
        return definition
