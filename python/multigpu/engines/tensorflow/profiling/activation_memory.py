"""Compute the memory that a replica needs besides weights and their gradients, from the graph of a training step.

It traces the graph of one replica, forward and backward, and never runs it. It goes through the ops in order: a tensor
takes memory from the op that makes it to the last op that reads it. The result is the largest sum at any time.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.replicas.inner_graphs import as_one_graph
from multigpu.engines.tensorflow.replicas.parts import Parts, parts_of_ops, scopes_noted
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope, inside_replica
from multigpu.engines.tensorflow.weights.place_locate import read
from multigpu.private_api.layers import inputs_of

OPEN_LENGTH = 128  # length of axes whose length depends on the data
VIEWS = {  # ops whose result is the memory of their input
    *("Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "IdentityN", "ReadVariableOp"),
    *("Const", "Shape", "ShapeN", "BroadcastGradientArgs", "NoOp"),
}
EVERYWHERE = {  # ops whose results each part computes itself
    *("Placeholder", "ReadVariableOp", "Const", "Shape", "ShapeN", "BroadcastGradientArgs")
}
IN_PLACE = {  # ops that overwrite an input that no later op reads
    *("BiasAdd", "Relu", "Relu6", "Elu", "Selu", "Tanh", "Sigmoid", "Softmax", "LeakyRelu", "AddV2", "Add", "Sub"),
    *("Mul", "RealDiv", "Neg", "Exp", "Log", "Square", "Sqrt", "Rsqrt", "Maximum", "Minimum", "Cast", "AddN"),
    *("SelectV2", "ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "TanhGrad", "SigmoidGrad", "LeakyReluGrad"),
}


class Activations(NamedTuple):
    """The bytes that a slice needs on the device of a part. None if they cannot be traced.

    Attributes:
        at_once: the largest number of bytes that is needed at the same time.
        received: bytes from other parts, forward and backward.
        sent: bytes to other parts.
    """

    at_once: int | None
    received: int = 0
    sent: int = 0


def activations_of(template: keras.Model, rows: int, parts: Sequence[str]) -> list[Activations]:
    """Return the memory of a slice, for each part of a template, or for a whole template without parts.

    Args:
        template: the template whose training step is traced.
        rows: the rows of the slice.
        parts: the devices that the template names.
    """
    specs, number = specs_of(template, rows), max(len(parts), 1)
    if specs is None or not rows:
        return [Activations(0 if specs is not None else None)] * number
    step = _TrainingStep(template, parts)
    ops = step.trace(specs)
    if not parts:
        return [Activations(most_at_once(ops, step.gradients))]
    of_parts = step.parts_of(ops)
    crossing = [
        (of_parts[x.op.name], part, tensor_bytes(x))
        for x, part in {(x.ref(), of_parts[op.name]): (x, of_parts[op.name]) for op in ops for x in op.inputs}.values()
        if of_parts[x.op.name] != part and x.op.type not in EVERYWHERE
    ]
    return [
        Activations(
            at_once=most_at_once([op for op in ops if of_parts[op.name] == part], step.gradients),
            received=sum(size for _, receiver, size in crossing if receiver == part),
            sent=sum(size for sender, _, size in crossing if sender == part),
        )
        for part in range(number)
    ]


def most_at_once(ops: Sequence[tf.Operation], apart: Iterable[tf.Tensor] = ()) -> int:
    """Return the bytes of the tensors that are needed at the same time, if the ops run in this order.

    Args:
        ops: the ops, in the order in which they were made.
        apart: tensors that do not count.
    """
    owner: dict[int, tf.Tensor] = {}  # tensor → the tensor whose memory it shares
    last: dict[int, int] = {}  # such a tensor → the number of the op that reads it last
    for number, op in enumerate(ops):
        for x in op.outputs:
            owner[id(x)] = owner.get(id(op.inputs[0]), op.inputs[0]) if op.type in VIEWS and len(op.inputs) else x
        for x in op.inputs:
            last[id(owner.get(id(x), x))] = number
    left_out = {id(owner.get(id(x), x)) for x in apart}
    now = most = 0
    ending: dict[int, int] = {}  # number of an op → bytes that are free after it
    for number, op in enumerate(ops):
        made = sum(tensor_bytes(x) for x in op.outputs if id(x) not in left_out) if op.type not in VIEWS else 0
        reused = made if op.type in IN_PLACE and any(_ends(x, number, owner, last) == made for x in op.inputs) else 0
        most = max(most, now + made - reused)
        now += made - ending.pop(number, 0)
        for x in op.outputs:
            if op.type not in VIEWS and id(x) not in left_out:
                end = last.get(id(x), number)
                if end == number:
                    now -= tensor_bytes(x)
                else:
                    ending[end] = ending.get(end, 0) + tensor_bytes(x)
    return most


def _ends(x: tf.Tensor, number: int, owner: dict[int, tf.Tensor], last: dict[int, int]) -> int:
    """Return the bytes of a tensor's memory if no op after this one reads it, otherwise 0."""
    memory = owner.get(id(x), x)
    free = last.get(id(memory)) == number and memory.op.type not in VIEWS
    return tensor_bytes(memory) if free else 0


def tensor_bytes(x: tf.Tensor) -> int:
    """Return the bytes of a tensor, 0 if its shape is unknown."""
    known = x.shape.is_fully_defined() and x.dtype not in (tf.resource, tf.variant, tf.string)
    return x.shape.num_elements() * x.dtype.size if known else 0


class _TrainingStep:
    """The forward and backward pass of a template, as a replica runs it.

    Attributes:
        gradients: the gradients of all weights.
    """

    def __init__(self, template: keras.Model, parts: Sequence[str]) -> None:
        self._template = template
        self._parts = parts
        self._num_forward = self._num_ops = 0
        self.gradients: list[tf.Tensor] = []

    def trace(self, specs: object) -> list[tf.Operation]:
        """Return the ops in order."""
        graph = tf.function(self._run, autograph=False).get_concrete_function(specs).graph
        return graph.get_operations()[: self._num_ops]

    def parts_of(self, ops: Sequence[tf.Operation]) -> dict[str, int]:
        """Return the number of the part of each op, by name. An op of no part belongs to the part of the op before."""
        known = parts_of_ops(ops, self._noted.of_ops(ops[: self._num_forward]))
        found: dict[str, int] = {}
        for op in ops:
            part = known[op.name]
            found[op.name] = part if part is not None else next(reversed(found.values()), 0)
        return found

    def _run(self, inputs: object) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        self._noted = Parts(self._parts, self._parts)
        variables = self._template.variables
        with tf.GradientTape() as tape, self._around(ReplicaScope(variables, list(map(read, variables)))):
            outputs = keras.tree.flatten(self._template(inputs, training=True))
        self._num_forward = len(graph.get_operations())
        upstream = [tf.stop_gradient(output) for output in outputs]  # stands for a gradient of the same size
        weights = [v.value for v in self._template.trainable_variables]
        if self._parts:  # a tape does not tell which op's gradient an op computes
            handles = [weight.handle for weight in weights]
            found = tf.compat.v1.gradients(outputs, handles, upstream, colocate_gradients_with_ops=True)
        else:
            found = tape.gradient(outputs, weights, upstream)
        self.gradients = [x for x in tf.nest.flatten(found, expand_composites=True) if x is not None]
        self._num_ops = len(graph.get_operations())
        return self.gradients

    @contextlib.contextmanager
    def _around(self, scope: ReplicaScope) -> Iterator[None]:
        """Make a replica run the code of a `with` block."""
        again = None if self._parts else self._around
        with scope, inside_replica(), scopes_noted(self._noted.scope), as_one_graph(scope, again):
            yield


def specs_of(template: keras.Model, rows: int) -> Any:
    """Return the template's input types for a number of rows; None if unknown. Axes of unknown length get one."""
    inputs = inputs_of(template, rows, OPEN_LENGTH)
    return None if inputs is None else keras.tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), inputs)
