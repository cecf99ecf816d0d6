"""Memory that a replica needs beside weights and their gradients, read from the graph of a training step.

The graph of one replica, forward and backward, is traced and never run. Its ops are gone through in order; a tensor
takes memory from the op that makes it to the last one that reads it. The most that is taken at once is the answer.
"""

from collections.abc import Iterable, Sequence

import keras
import tensorflow as tf

VIEWS = {  # ops whose result is the memory of their input
    *("Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "IdentityN", "ReadVariableOp"),
    *("Const", "Shape", "ShapeN", "BroadcastGradientArgs", "NoOp"),
}
IN_PLACE = {  # ops that write over an input that nobody else reads any more
    *("BiasAdd", "Relu", "Relu6", "Elu", "Selu", "Tanh", "Sigmoid", "Softmax", "LeakyRelu", "AddV2", "Add", "Sub"),
    *("Mul", "RealDiv", "Neg", "Exp", "Log", "Square", "Sqrt", "Rsqrt", "Maximum", "Minimum", "Cast", "AddN"),
    *("SelectV2", "ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "TanhGrad", "SigmoidGrad", "LeakyReluGrad"),
}


def activation_bytes(template: keras.Model, rows: int) -> int | None:
    """Bytes that a replica needs at most at once for a slice of so many rows, or None where that cannot be traced."""
    specs = _specs(template, rows)
    if specs is None or not rows:
        return 0 if specs is not None else None
    graph = _training_step(template).get_concrete_function(specs).graph
    gradients = tf.nest.flatten(graph.structured_outputs, expand_composites=True)
    return most_at_once(graph.get_operations(), [x for x in gradients if x is not None])


def most_at_once(ops: Sequence[tf.Operation], apart: Iterable[tf.Tensor] = ()) -> int:
    """Bytes of the tensors that are needed at the same time, if the ops run in this order.

    Args:
        ops: in the order in which they were made.
        apart: tensors that do not count.
    """
    owner: dict[int, tf.Tensor] = {}  # of a tensor: the one whose memory it is in
    last: dict[int, int] = {}  # of such a one: the number of the op that reads it last
    for number, op in enumerate(ops):
        for x in op.outputs:
            owner[id(x)] = owner.get(id(op.inputs[0]), op.inputs[0]) if op.type in VIEWS and len(op.inputs) else x
        for x in op.inputs:
            last[id(owner.get(id(x), x))] = number
    left_out = {id(owner.get(id(x), x)) for x in apart}
    now = most = 0
    ending: dict[int, int] = {}  # number of an op → bytes that end with it
    for number, op in enumerate(ops):
        made = sum(_num_bytes(x) for x in op.outputs if id(x) not in left_out) if op.type not in VIEWS else 0
        reused = made if op.type in IN_PLACE and any(_ends(x, number, owner, last) == made for x in op.inputs) else 0
        most = max(most, now + made - reused)
        now += made - ending.pop(number, 0)
        for x in op.outputs:
            if op.type not in VIEWS and id(x) not in left_out:
                end = last.get(id(x), number)
                if end == number:
                    now -= _num_bytes(x)
                else:
                    ending[end] = ending.get(end, 0) + _num_bytes(x)
    return most


def _ends(x: tf.Tensor, number: int, owner: dict[int, tf.Tensor], last: dict[int, int]) -> int:
    """Bytes of the memory of a tensor that nobody reads after this op, else 0."""
    memory = owner.get(id(x), x)
    free = last.get(id(memory)) == number and memory.op.type not in VIEWS
    return _num_bytes(memory) if free else 0


def _num_bytes(x: tf.Tensor) -> int:
    known = x.shape.is_fully_defined() and x.dtype not in (tf.resource, tf.variant, tf.string)
    return x.shape.num_elements() * x.dtype.size if known else 0


def _training_step(template: keras.Model) -> tf.types.experimental.PolymorphicFunction:
    """Forward and backward of a template, as a replica runs it, with the gradients of all weights."""

    @tf.function(autograph=False)
    def step(inputs: object) -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(template(inputs, training=True))
        upstream = [tf.stop_gradient(output) for output in outputs]  # stands for a gradient of the same size
        return tape.gradient(outputs, [v.value for v in template.trainable_variables], upstream)

    return step


def _specs(template: keras.Model, rows: int) -> object:
    """What a template takes, for so many rows; None if it does not say. An axis of open length counts as 128."""
    inputs = getattr(template, "inputs", None)
    if not inputs:
        return None
    specs = [tf.TensorSpec((rows, *(n or 128 for n in x.shape[1:])), x.dtype) for x in keras.tree.flatten(inputs)]
    return specs[0] if isinstance(template, keras.Sequential) else keras.tree.pack_sequence_as(template.input, specs)
