"""What cannot be a template, refused before training rather than during it."""

import keras

from multigpu.arguments import check_model
from multigpu.parallel.model import ParallelModel
from multigpu.parallel.overrides import assigned_verbs, parallel_parts
from multigpu.parallel.redirected_template import parallel_of
from multigpu.parallel.row_checks import check_rows, is_fixed, symbolic
from multigpu.private_api.layers import sublayers
from multigpu.weights.home_parts import placed_calls


def check_template(model: keras.Model, groups: bool = False) -> None:
    """Refuses, by name, what cannot be replicated.

    Args:
        model: to be the template.
        groups: whether each replica has several devices, so that the template may have parts.

    Raises:
        ValueError: `model` is not a Keras 3 model, or parallel already, unbuilt, stateful, or has inputs of
            a fixed batch size or outputs without a batch axis.
    """
    check_model("model", model)
    _check_not_parallel(model)
    _check_verbs(model)
    _check_called(model)
    if not groups:
        check_unplaced(model)
    _check_built(model)
    _check_inputs(model)
    _check_stateless(model)
    check_rows(model)


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


def _check_called(model: keras.Model) -> None:
    """Refuses a class that has no call which could be spread, such as one whose `train_step` calls parts of it."""
    if getattr(model.call, "__func__", None) is keras.Model.call:
        raise ValueError(
            "Expected a model whose class defines `call()`: that is the call that is spread over the devices. "
            f"Received: {model.name!r} of the class {type(model).__name__}, which has none. {parallel_parts(model)}"
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
    for tensor in symbolic(model, "inputs"):
        if is_fixed(tensor):
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
                f"Received: the stateful layer {layer.name!r}, whose state has one row per row of a global batch. "
                "Use `stateful=False`, or train the template on one device."
            )


def check_unplaced(model: keras.Layer) -> None:
    """Refuses, with a ValueError, a model in which calls are placed on devices."""
    for name, _ in placed_calls(model):
        raise parts_in_parts(name)


def parts_in_parts(name: str) -> ValueError:
    """The error for a device inside of what is itself spread, or placed, as a whole."""
    return ValueError(
        "Expected a model that says nothing of devices, since it is to run as a whole on each device that it is given. "
        f"Received: one in which {name!r} is called in `on_device()`. Build it without that; or give each replica a "
        "group of devices, one for each part, as in `multi_gpu_model(model, gpus=[['GPU:0', 'GPU:1'], ['GPU:2', "
        "'GPU:3']])`."
    )
