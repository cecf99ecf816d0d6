"""Infer the shapes of a trace for many rows: TensorFlow infers them again, from placeholders of the slices."""

from collections.abc import Sequence

import tensorflow as tf

ROWS = 997  # rows of a placeholder: a prime, so that multiples of it are sizes of rows
LENGTH = 2520  # length of its other open axes: with many divisors, so that a template can cut or fold them


class OpenShapes:
    """The shapes of a template's trace for `ROWS` rows.

    It copies the ops on which a shape depends into a separate graph, each once, and never runs them. Results of
    functions that an op calls, such as loops, stay as open there as in the trace.

    Attributes:
        lengths_open: whether the slices have open axes besides the axis of rows.
    """

    def __init__(self, slices: Sequence[tf.Tensor]) -> None:
        """Store the template's input tensors with rows, dense or composite."""
        self.lengths_open = any(None in x.shape[1:].as_list() for x in slices if x.shape.rank)
        self._graph = tf.Graph()
        self._stand_ins: dict[int, tf.Tensor] = {}  # by the id of the trace's tensor
        self._alive: list[tf.Tensor] = []  # keeps these tensors, because Python reuses ids
        for x in slices:
            self._give_rows(x)

    def of(self, shape: tf.Tensor) -> tf.TensorShape:
        """Return a shape of the trace for many rows."""
        with self._graph.as_default():
            return tf.fill(self._stand_in(shape), False).shape

    def _give_rows(self, x: tf.Tensor) -> None:
        with self._graph.as_default():
            if isinstance(x, tf.RaggedTensor):
                self._stand(x.row_splits, tf.compat.v1.placeholder(x.row_splits.dtype, [ROWS + 1]))
            elif isinstance(x, tf.SparseTensor):
                sizes = [ROWS, *(size or LENGTH for size in x.shape[1:])]
                self._stand(x.dense_shape, tf.constant(sizes, tf.int64))
            else:
                shape = [ROWS, *(size or LENGTH for size in x.shape[1:])] if x.shape.rank else None
                self._stand(x, tf.compat.v1.placeholder(x.dtype, shape))

    def _stand(self, tensor: tf.Tensor, stand_in: tf.Tensor) -> tf.Tensor:
        self._stand_ins[id(tensor)] = stand_in
        self._alive.append(tensor)
        return stand_in

    def _stand_in(self, tensor: tf.Tensor) -> tf.Tensor:
        if id(tensor) not in self._stand_ins:
            try:
                self._take_over(tensor)
            except ValueError:  # the template cannot process so long a batch: its shapes stay as they are
                self._stand(tensor, tf.compat.v1.placeholder(tensor.dtype, tensor.shape))
        return self._stand_ins[id(tensor)]

    def _take_over(self, tensor: tf.Tensor) -> None:
        """Infer a tensor of the trace from the tensors on which it depends."""
        ops, pending = {}, [tensor]
        while pending:
            x = pending.pop()
            if id(x) in self._stand_ins or x.op.name in ops:
                continue
            outer = captured(x)
            if outer is not None and tf.is_symbolic_tensor(outer):
                self._stand(x, self._stand_in(outer))
            elif _is_opaque(x):
                self._stand(x, tf.compat.v1.placeholder(x.dtype, x.shape))
            else:
                ops[x.op.name] = x.op
                pending += x.op.inputs
        if ops:
            self._import(list(ops.values()))

    def _import(self, ops: Sequence[tf.Operation]) -> None:
        definition = tf.compat.v1.GraphDef(versions=ops[0].graph.graph_def_versions)
        for op in ops:
            node = definition.node.add()
            node.CopyFrom(op.node_def)
            kept = [name for name in node.input if not name.startswith("^")]
            del node.input[:]
            node.input.extend(kept)
            node.attr.pop("_class", None)
            node.device = ""
        known = {x.name: self._stand_ins[id(x)] for op in ops for x in op.inputs if id(x) in self._stand_ins}
        made = [x for op in ops for x in op.outputs]
        stand_ins = tf.graph_util.import_graph_def(definition, input_map=known, return_elements=[x.name for x in made])
        for x, stand_in in zip(made, stand_ins, strict=True):
            stand_in.set_shape(x.shape)  # code may have set it in the trace
            self._stand(x, stand_in)


def captured(x: tf.Tensor) -> tf.Tensor | None:
    """Return the tensor around a function that an inner tensor stands for."""
    if x.op.type != "Placeholder":
        return None
    return next((outer for outer, inner in getattr(x.graph, "captures", ()) if inner is x), None)


def _is_opaque(x: tf.Tensor) -> bool:
    """Return whether what a tensor depends on does not tell more of its shape, nor the tensor of others."""
    op = x.op
    calls = any(attribute.type in ("func", "list(func)") for attribute in op.op_def.attr)
    takes_handle = any(each.dtype in (tf.resource, tf.variant) for each in [x, *op.inputs])
    known = x.dtype.is_floating and x.shape.is_fully_defined()
    return op.type == "Placeholder" or calls or takes_handle or known
