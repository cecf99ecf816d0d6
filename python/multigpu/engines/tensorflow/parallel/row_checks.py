"""Check that a template keeps the rows of a batch apart, as far as its symbolic tensors show it."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.parallel.distribute_strategy import check_made_without
from multigpu.engines.tensorflow.parallel.row_changes import MANY, name_layer
from multigpu.engines.tensorflow.replicas.global_batch import depending_on
from multigpu.engines.tensorflow.replicas.outputs import no_batch_axis
from multigpu.engines.tensorflow.replicas.row_mixing import IN_ONE_PIECE
from multigpu.engines.tensorflow.replicas.scope import inside_replica
from multigpu.engines.tensorflow.weights.home_parts import check_unplaced
from multigpu.private_api.layers import inputs_of, is_fixed, output_names, sublayers, symbolic

Shape = tuple[int | None, ...]
T = TypeVar("T")


def check_rows(model: keras.Model, groups: bool = False) -> None:
    """Raise a ValueError that names what does not process the rows of a batch one by one.

    Args:
        model: the template to check.
        groups: whether each replica has several devices, so that the template may have parts.

    Raises:
        ValueError: inputs have a fixed batch size; the model was made in the scope of a strategy, or has parts without
            groups; a layer keeps state between batches; an output has no batch axis, other rows than the inputs, or all
            pairs of rows; or a function makes one value of all rows.
    """
    _check_inputs(model)
    check_made_without(model)
    if not groups:
        check_unplaced(model)
    _check_stateless(model)
    _check_outputs(model)
    _check_rows_apart(model)
    _check_rows_kept(model)


def _check_inputs(model: keras.Model) -> None:
    """Raise an error for a fixed batch size, which functions of a functional model may have used.

    The batch size of a Sequential does not matter: if a call built it, it only records that call's rows, and its layers
    are called again with each batch.
    """
    if isinstance(model, keras.Sequential):
        return
    for tensor in symbolic(model, "inputs"):
        if is_fixed(tensor):
            raise refuse(
                "inputs without a fixed batch size, so that a batch can be split",
                f"input {tensor.name!r} with the fixed batch size {tensor.shape[0]}",
                "Declare it with `keras.Input(shape=...)` instead of `batch_shape` or `batch_size`.",
            )


def _check_stateless(model: keras.Model) -> None:
    for layer in sublayers(model):
        if getattr(layer, "stateful", False):
            raise refuse(
                "layers that keep nothing between batches",
                f"the stateful layer {layer.name!r}, whose state has one row per row of a global batch",
                f"Use `stateful=False`, or {IN_ONE_PIECE}.",
            )


def _check_outputs(model: keras.Model) -> None:
    """Raise an error for outputs with other rows than the inputs, or without rows that rows reach.

    It names the first such layer.
    """
    outputs = _outputs(model)
    many = _output_shapes(model, MANY) if outputs else []
    for number, ((name, shape), with_rows) in enumerate(zip(outputs, many, strict=True)):
        closed = len(shape) == 0 or shape[0] is not None
        if (closed and number in _reached_by_rows(model)) or (not closed and (with_rows[0] or 0) % MANY):
            error = no_batch_axis(name, shape)
            batch = _in_trace(model, lambda *x: CallArguments(x, {}).without_tensors())
            name_layer(error, model, batch, None, num_slices=2)
            raise error


def _reached_by_rows(model: keras.Model) -> set[int]:
    """Return the numbers of the outputs that depend on rows, as a trace shows it."""

    def run(x: Any) -> set[int]:
        with keras.StatelessScope(collect_losses=True), inside_replica():  # in one graph, and without any change
            outputs = [flatten_composites([output]) for output in keras.tree.flatten(model(x))]
        of_rows = depending_on(flatten_composites(keras.tree.flatten(x)))
        return {number for number, parts in enumerate(outputs) if any(map(of_rows, parts))}

    return _in_trace(model, run)


def _in_trace(model: keras.Model, function: Callable[[Any], T]) -> T:
    """Return the result of a function in a trace, with inputs of a model."""
    specs, results = keras.tree.map_structure(_spec, inputs_of(model, None)), list[T]()
    tf.function(lambda x: results.append(function(x)), autograph=False).get_concrete_function(specs)
    return results[0]


def _spec(x: keras.KerasTensor) -> tf.TypeSpec:
    kind = tf.SparseTensorSpec if x.sparse else tf.RaggedTensorSpec if x.ragged else tf.TensorSpec
    return kind(x.shape, x.dtype)


def _check_rows_apart(model: keras.Model) -> None:
    """Raise an error for an output with an axis as long as the batch, such as all pairs of rows."""
    outputs = _outputs(model)
    if all(None not in shape[1:] for _, shape in outputs):
        return
    for (name, shape), two, three in zip(outputs, _output_shapes(model, 2), _output_shapes(model, 3), strict=True):
        if two[1:] != three[1:]:
            raise refuse(
                "outputs whose rows do not depend on the number of rows",
                f"output {name!r} with shape {tuple(shape)}, which for 2 rows is {tuple(two)} and for 3 rows "
                f"{tuple(three)}",
                "Return values of single rows, and compare rows in a loss function, which sees the global batch.",
            )


def _check_rows_kept(model: keras.Model) -> None:
    """Raise an error for functions that make one value of all rows: each replica would have its own."""
    for part in [model, *sublayers(model)]:
        for operation in getattr(part, "operations", []):
            if isinstance(operation, keras.Layer):
                continue  # a custom layer may use only shapes, such as a layer for positions
            given = [x.shape for x in keras.tree.flatten(operation.input) if x.shape and x.shape[0] is None]
            lost = [x.shape for x in keras.tree.flatten(operation.output) if None not in x.shape]
            if given and lost and not _may_stand_for_all(operation, part):
                raise refuse(
                    "functions that take the rows of a batch one by one, so that slices of it can be run and merged",
                    f"{operation.name!r}, whose output has shape {tuple(lost[0])} for an input of shape "
                    f"{tuple(given[0])}",
                    "Keep the batch axis, or compare rows in a loss function, which sees the global batch.",
                )


def _may_stand_for_all(operation: keras.Operation, model: keras.Model) -> bool:
    """Return whether an op takes one row of an input with one number for each, a setting of all rows.

    A trace shows which one.
    """
    if type(operation).__name__ != "GetItem" or math.prod(operation.output.shape) != 1:
        return False
    return any(operation.input is x and all(size == 1 for size in x.shape[1:]) for x in model.inputs)


def _outputs(model: keras.Model) -> list[tuple[str, Shape]]:
    """Return the names and shapes of the outputs, for any number of rows."""
    tensors = symbolic(model, "outputs")
    names = output_names(model) if tensors else []
    shapes = [tensor.shape for tensor in tensors]
    if any(map(is_fixed, symbolic(model, "inputs"))):
        shapes = _output_shapes(model, None)
    return list(zip(names, shapes, strict=True))


def _output_shapes(model: keras.Model, rows: int | None) -> list[Shape]:
    """Return the shapes of the outputs for a batch of so many rows."""
    try:
        return [x.shape for x in keras.tree.flatten(model.compute_output_spec(inputs_of(model, rows)))]
    except Exception as error:  # any error of a custom layer
        raise refuse(
            "a model that takes batches of any size, so that a batch can be split",
            f"{model.name!r}, which fails for {rows or 'an open number of'} rows: {error} In its layers, read the "
            "number from the batch, as `keras.ops.shape(x)[0]`",
        ) from error
