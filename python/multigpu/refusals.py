"""What cannot be a template, refused before training rather than during it."""

from typing import Any

import keras
import tensorflow as tf

from multigpu.batch import Batch
from multigpu.parallel import ParallelModel
from multigpu.placed_call import check_unplaced
from multigpu.row_changes import MANY, name_layer
from multigpu.template import no_batch_axis, output_names, sublayers

Shape = tuple[int | None, ...]


def check_template(model: object) -> None:
    """Refuses, by name, what cannot be replicated.

    Raises:
        ValueError: `model` is not a Keras 3 model, or parallel already, unbuilt, stateful, or has inputs of
            a fixed batch size or outputs without a batch axis.
    """
    _check_kind(model)
    check_unplaced(model)
    _check_built(model)
    _check_inputs(model)
    _check_stateless(model)
    _check_outputs(model)
    _check_rows_apart(model)


def check_backend() -> None:
    """Refuses to work on another backend than TensorFlow, with a ValueError."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            f"Expected Keras to run on the TensorFlow backend. Received: backend {backend!r}. "
            "Set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`."
        )


def _check_kind(model: object) -> None:
    if isinstance(model, keras.Model):
        _check_not_parallel(model)
        return
    if any(cls.__module__.startswith("tf_keras") for cls in type(model).__mro__):
        raise ValueError(
            f"Expected a Keras 3 model. Received: {type(model).__name__} from `tf_keras`, which is Keras 2. "
            "Build the model with `import keras` (and unset TF_USE_LEGACY_KERAS if `tf.keras` is used)."
        )
    raise ValueError(
        f"Expected a Keras model. Received: {model!r} of type {type(model).__name__}. "
        "Pass a built `keras.Sequential`, functional or subclassed `keras.Model`."
    )


def _check_not_parallel(model: keras.Model) -> None:
    for part in [model, *sublayers(model)]:
        if isinstance(part, ParallelModel):
            raise ValueError(
                f"Expected a template: a model that runs on one device. Received: {part.name!r}, which is parallel "
                f"already ({part.plan}). Pass `parallel.template` to spread it anew."
            )


def _check_built(model: keras.Model) -> None:
    if not model.built:
        raise ValueError(
            f"Expected a built model, whose weights exist. Received: {model.name!r}, which is not built. Start it with "
            "`keras.Input(shape)`, or call it once on a batch, before `multi_gpu_model()`."
        )


def _check_inputs(model: keras.Model) -> None:
    """Refuses a fixed batch size, which functions of a functional model may have noted.

    A Sequential has none that counts: one that was built by a call only says how many rows it saw, and its layers are
    called anew with each batch.
    """
    if isinstance(model, keras.Sequential):
        return
    for tensor in _symbolic(model, "inputs"):
        if _is_fixed(tensor):
            raise ValueError(
                "Expected inputs with an open batch axis, so that a batch can be split. "
                f"Received: input {tensor.name!r} with the fixed batch size {tensor.shape[0]}. "
                "Declare it with `keras.Input(shape=...)` instead of `batch_shape` or `batch_size`."
            )


def _check_stateless(model: keras.Model) -> None:
    for layer in sublayers(model):
        if getattr(layer, "stateful", False):
            raise ValueError(
                "Expected layers that keep nothing between batches. "
                f"Received: the stateful layer {layer.name!r}, whose state has one row per row of a whole batch. "
                "Use `stateful=False`, or train the template on one device."
            )


def _check_outputs(model: keras.Model) -> None:
    """Refuses outputs without rows, or with other rows than the inputs, and names the layer where that begins."""
    outputs = _outputs(model)
    many = _output_shapes(model, MANY) if outputs else []
    for (name, shape), with_rows in zip(outputs, many, strict=True):
        if len(shape) == 0 or shape[0] is not None or (with_rows[0] or 0) % MANY:
            error = ValueError(no_batch_axis(name, shape))
            name_layer(error, model, _batch_for(model), None, num_slices=2)
            raise error


def _batch_for(model: keras.Model) -> Batch:
    """What a model is called with, without tensors."""
    batches: list[Batch] = []
    traced = tf.function(lambda *x: batches.append(Batch(x, {}).without_tensors()), autograph=False)
    traced.get_concrete_function(_in_structure(model, [_spec(x) for x in _symbolic(model, "inputs")]))
    return batches[0]


def _spec(x: keras.KerasTensor) -> tf.TypeSpec:
    kind = tf.SparseTensorSpec if x.sparse else tf.RaggedTensorSpec if x.ragged else tf.TensorSpec
    return kind((None, *x.shape[1:]), x.dtype)


def _check_rows_apart(model: keras.Model) -> None:
    """Refuses an output with an axis as long as the batch, such as all pairs of rows: slices do not have all pairs."""
    outputs = _outputs(model)
    if all(None not in shape[1:] for _, shape in outputs):
        return
    for (name, shape), two, three in zip(outputs, _output_shapes(model, 2), _output_shapes(model, 3), strict=True):
        if two[1:] != three[1:]:
            raise ValueError(
                "Expected outputs whose rows do not depend on how many there are. "
                f"Received: output {name!r} with shape {tuple(shape)}, which for 2 rows is {tuple(two)} and for "
                f"3 rows {tuple(three)}. Return values of single rows, and compare rows in a loss function, which sees "
                "the whole batch."
            )


def _outputs(model: keras.Model) -> list[tuple[str, Shape]]:
    """Names and shapes of the outputs, for any number of rows."""
    tensors = _symbolic(model, "outputs")
    names = output_names(model) if tensors else []
    fixed = [tensor.shape[0] for tensor in _symbolic(model, "inputs") if _is_fixed(tensor)]
    shapes = _shapes_for_any_batch(model, fixed[0]) if fixed else [tensor.shape for tensor in tensors]
    return list(zip(names, shapes, strict=True))


def _shapes_for_any_batch(model: keras.Model, rows: int) -> list[Shape]:
    """Shapes of the outputs of a model that was built with so many rows, once the batch axis is open."""
    try:
        return _output_shapes(model, None)
    except Exception as error:  # of a layer of somebody's own: anything
        raise ValueError(
            "Expected a model that takes batches of any size, so that a batch can be split. "
            f"Received: {model.name!r}, which was built with {rows} rows and fails where their number is open: {error} "
            "Let its layers ask for it, as `keras.ops.shape(x)[0]`."
        ) from error


def _output_shapes(model: keras.Model, rows: int | None) -> list[Shape]:
    """Shapes of the outputs for a batch of so many rows."""
    inputs = [
        keras.KerasTensor((rows, *x.shape[1:]), x.dtype, sparse=x.sparse, ragged=x.ragged, name=x.name)
        for x in _symbolic(model, "inputs")
    ]
    return [x.shape for x in keras.tree.flatten(model.compute_output_spec(_in_structure(model, inputs)))]


def _in_structure(model: keras.Model, inputs: list[Any]) -> Any:
    """Inputs as a model takes them."""
    return inputs[0] if isinstance(model, keras.Sequential) else keras.tree.pack_sequence_as(model.input, inputs)


def _is_fixed(tensor: keras.KerasTensor) -> bool:
    return bool(tensor.shape) and tensor.shape[0] is not None


def _symbolic(model: keras.Model, side: str) -> list[keras.KerasTensor]:
    """Inputs or outputs of a model that was built from symbolic tensors; a subclassed one has none."""
    return keras.tree.flatten(getattr(model, side, None) or [])
