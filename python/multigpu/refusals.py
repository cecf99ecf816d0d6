"""What cannot be a template, refused before training rather than during it."""

import keras

from multigpu.led_template import parallel_of
from multigpu.overrides import assigned_verbs
from multigpu.parallel import ParallelModel
from multigpu.placed_call import check_unplaced
from multigpu.template import no_batch_axis, sublayers


def check_template(model: object) -> None:
    """Refuses, by name, what cannot be replicated.

    Raises:
        ValueError: `model` is not a Keras 3 model, or parallel already, unbuilt, stateful, or has inputs of
            a fixed batch size or outputs without a batch axis.
    """
    _check_kind(model)
    _check_verbs(model)
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
        parallel = parallel_of(part)
        if isinstance(parallel, ParallelModel):
            raise ValueError(
                f"Expected a template: a model that runs on one device. Received: {part.name!r}, which is parallel "
                f"already ({parallel.plan}). Pass `parallel.template` to spread it anew."
            )


def _check_verbs(model: keras.Model) -> None:
    """Refuses verbs that were assigned to the model itself: they are bound to it, and would run on one device."""
    for name in assigned_verbs(model):
        raise ValueError(
            f"Expected `{name}` to be defined by the class of a model, so that what it calls can run on all devices. "
            f"Received: {model.name!r}, to which it was assigned. Write a subclass with a method `{name}(self, ...)`."
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
