"""The template: what can be one, and what is refused before training rather than during it."""

from collections.abc import Iterable, Iterator

import keras


def check_template(model: object) -> None:
    """Refuses, by name, what cannot be replicated.

    Raises:
        ValueError: `model` is parallel already, unbuilt, stateful, or has inputs of
            a fixed batch size or outputs without a batch axis.
        TypeError: `model` is not a Keras 3 model.
    """
    _check_kind(model)
    _check_built(model)
    _check_inputs(model)
    _check_stateless(model)
    _check_outputs(model)


def sublayers(model: keras.Model) -> list[keras.Layer]:
    """All layers inside a model, at any depth. `model.layers` stops at wrappers such as Bidirectional."""
    return model._flatten_layers(include_self=False)


def check_backend() -> None:
    """Refuses to work on another backend than TensorFlow, with a ValueError."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            f"Expected Keras to run on the TensorFlow backend. Received: backend {backend!r}. "
            "Set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`."
        )


def _check_kind(model: object) -> None:
    from multigpu.parallel import ParallelModel

    if isinstance(model, ParallelModel):
        raise ValueError(
            f"Expected a template: a model that runs on one device. Received: {model.name!r}, which is parallel "
            f"already ({model.plan}). Pass `parallel.template` to spread it anew."
        )
    if isinstance(model, keras.Model):
        return
    if any(cls.__module__.startswith("tf_keras") for cls in type(model).__mro__):
        raise TypeError(
            f"Expected a Keras 3 model. Received: {type(model).__name__} from `tf_keras`, which is Keras 2. "
            "Build the model with `import keras` (and unset TF_USE_LEGACY_KERAS if `tf.keras` is used)."
        )
    raise TypeError(
        f"Expected a Keras model. Received: {model!r} of type {type(model).__name__}. "
        "Pass a built `keras.Sequential`, functional or subclassed `keras.Model`."
    )


def _check_built(model: keras.Model) -> None:
    unbuilt = [] if model.built else [model]
    unbuilt += [layer for layer in sublayers(model) if not layer.built and model.built]
    if unbuilt:
        raise ValueError(
            f"Expected a built model, whose weights exist. Received: {model.name!r}, in which "
            f"{unbuilt[0].name!r} is not built. Start it with `keras.Input(shape)`, or call it once on a batch, "
            "before `multi_gpu_model()`."
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
    names = getattr(model, "output_names", None) or []
    for position, tensor in enumerate(_symbolic(model, "outputs")):
        if len(tensor.shape) == 0 or tensor.shape[0] is not None:
            name = names[position] if position < len(names) else tensor.name
            raise ValueError(no_batch_axis(name, tensor.shape))


def no_batch_axis(name: str, shape: Iterable[int | None]) -> str:
    """The message for an output that cannot be merged."""
    return (
        "Expected every output of the template to have a batch axis, so that the slices of the replicas can be merged. "
        f"Received: output {name!r} with shape {tuple(shape)}. Return one value per row, for instance a loss of shape "
        "(batch,), or move the reduction into a loss function or into `add_loss()`."
    )


def _symbolic(model: keras.Model, side: str) -> Iterator[keras.KerasTensor]:
    """Inputs or outputs of a model that was built from symbolic tensors; a subclassed one has none."""
    return iter(keras.tree.flatten(getattr(model, side, None) or []))
