"""State outside of Keras that a template uses: variables of TensorFlow, queues, tables.

A trace reads it in its place. A custom loop may train such variables, though Keras does not know them. If the trace
changed them, each replica would do so.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.private_api.graphs import bodies_of
from multigpu.engines.tensorflow.replicas.row_mixing import WholeBatchError

READERS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
OF_TABLES = ("LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2")
HANDLES = ("handle", "resource_handle", "queue_ref")  # handles of variables, tables, queues


def trained_outside(variables: Iterable[tf.Variable], tables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Return the variables that a replica reads itself and that may need a gradient, except tables."""
    known = set(map(id, tables))
    return [variable for variable in variables if variable.trainable and id(variable) not in known]


def refuse_changes(function: tf.types.experimental.ConcreteFunction, layers: Sequence[keras.Layer]) -> None:
    """Raise an error for a trace that changes state outside of Keras.

    Args:
        function: the trace of a replica.
        layers: the layers that may have that state.

    Raises:
        WholeBatchError: names the layer, the state and the op that changes it.
    """
    for held, inside in function.graph.captures:
        for op in _changing(inside) if inside.dtype == tf.resource else ():
            raise _refusal(_name(held, function, layers), op)


@contextlib.contextmanager
def changes_refused(layers: Sequence[keras.Layer]) -> Iterator[None]:
    """Raise an error if code that runs op by op changes a TensorFlow variable. Only the values show this.

    Raises:
        WholeBatchError: names the layer that has the variable, which has its old value again.
    """
    held = [(name, _state_of(x)) for name, x in _held(layers)]
    before = [(name, x, x.numpy()) for name, x in held if isinstance(x, tf.Variable)]
    yield
    changed = [(name, x, value) for name, x, value in before if not np.array_equal(x, value)]
    for _, variable, value in changed:
        variable.assign(value)
    if changed:
        raise _refusal(changed[0][0], "an assignment")


def _refusal(held: str, changes: str) -> WholeBatchError:
    return refuse(
        "layers that keep their state in Keras variables, which have one value per batch",
        f"{held}, which {changes} changes in every replica",
        "Create it with `self.add_weight(..., trainable=False)`, or for noise with `keras.random.SeedGenerator()`; "
        "or change it in a callback or a step of your own, outside of the model's call.",
        error=WholeBatchError,
    )


def _changing(handle: tf.Tensor) -> Iterator[str]:
    """Return the types of the ops that change the state behind a handle."""
    for op in handle.consumers():
        bodies = list(bodies_of(op))
        for body, first in bodies:
            for place, x in enumerate(op.inputs[first:]):
                if x is handle:
                    yield from _changing(body.inputs[place])
        if op.type == "Identity":
            yield from _changing(op.outputs[0])
        elif not bodies and op.type not in (*READERS, *OF_TABLES) and "Summary" not in op.type:
            yield op.type


def _name(handle: tf.Tensor, function: tf.types.experimental.ConcreteFunction, layers: Sequence[keras.Layer]) -> str:
    """Return a name for a handle: the attribute of a layer that has it, or the variable's name."""
    for name, x in _held(layers):
        if any(getattr(_state_of(x), handle_of, None) is handle for handle_of in HANDLES):
            return name
    names = [variable.name for variable in function.variables if variable.handle is handle]
    return f"the variable {names[0]!r}" if names else "a resource that no layer has as an attribute"


def _held(layers: Sequence[keras.Layer]) -> Iterator[tuple[str, Any]]:
    """Return the attributes of layers, and the items of lists and dicts, with names of attribute and layer."""
    for layer in layers:
        for name, value in vars(layer).items():
            if name.startswith("_self_"):  # TensorFlow's list of its attributes
                continue
            held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
            yield from ((f"{name!r} of layer {layer.name!r}", x) for x in held)


def _state_of(x: Any) -> Any:
    return x.state if isinstance(x, tf.random.Generator) else x
