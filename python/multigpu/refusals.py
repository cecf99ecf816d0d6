"""What cannot be a template, refused before training rather than during it."""

import keras

from multigpu.parallel import ParallelModel
from multigpu.placed_call import check_unplaced
from multigpu.template import check_model, no_batch_axis, sublayers


def check_template(model: keras.Model) -> None:
    """Refuses, by name, what cannot be replicated.

    Raises:
        ValueError: `model` is not a Keras 3 model, or parallel already, unbuilt, stateful, or has inputs of
            a fixed batch size or outputs without a batch axis.
    """
    check_model("model", model)
    _check_not_parallel(model)
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
    for tensor in _symbolic(model, "inputs"):
        if tensor.shape and tensor.shape[0] is not None:
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
    for name, tensor in _named_outputs(model):
        if len(tensor.shape) == 0 or tensor.shape[0] is not None:
            raise ValueError(no_batch_axis(name, tensor.shape))


def _check_rows_apart(model: keras.Model) -> None:
    """Refuses an output with an axis as long as the batch, such as all pairs of rows: slices do not have all pairs."""
    if all(None not in tensor.shape[1:] for _, tensor in _named_outputs(model)):
        return
    for (name, tensor), two, three in zip(
        _named_outputs(model), _output_shapes(model, 2), _output_shapes(model, 3), strict=True
    ):
        if two[1:] != three[1:]:
            raise ValueError(
                "Expected outputs whose rows do not depend on how many there are. "
                f"Received: output {name!r} with shape {tuple(tensor.shape)}, which for 2 rows is {tuple(two)} and for "
                f"3 rows {tuple(three)}. Return values of single rows, and compare rows in a loss function, which sees "
                "the whole batch."
            )


def _output_shapes(model: keras.Model, rows: int) -> list[tuple[int | None, ...]]:
    """Shapes of the outputs for a batch of so many rows."""
    inputs = [
        keras.KerasTensor((rows, *x.shape[1:]), x.dtype, sparse=x.sparse, ragged=x.ragged, name=x.name)
        for x in _symbolic(model, "inputs")
    ]
    structure = inputs[0] if isinstance(model, keras.Sequential) else keras.tree.pack_sequence_as(model.input, inputs)
    return [tensor.shape for tensor in keras.tree.flatten(model.compute_output_spec(structure))]


def _named_outputs(model: keras.Model) -> list[tuple[str, keras.KerasTensor]]:
    tensors = _symbolic(model, "outputs")
    names = getattr(model, "output_names", None) or [tensor.name for tensor in tensors]
    return list(zip(names, tensors, strict=True))


def _symbolic(model: keras.Model, side: str) -> list[keras.KerasTensor]:
    """Inputs or outputs of a model that was built from symbolic tensors; a subclassed one has none."""
    return keras.tree.flatten(getattr(model, side, None) or [])
