"""The layers of a parallel model as in Keras 2, where the template is one of them: `parallel.layers[-2]`."""

from typing import Any

import keras

from multigpu.keras2.modules import put_name
from multigpu.model.parallel_model import ParallelModel


def restore() -> None:
    """Make the template a layer of its parallel models, which scripts of Keras 2 save, or find by its name."""
    clone = keras.models.clone_model
    ParallelModel.layers = property(_layers)  # type: ignore[assignment,method-assign]  # in place of the template's
    ParallelModel.get_layer = _get_layer  # type: ignore[method-assign]  # which looks in these layers alone
    put_name("models", "clone_model", lambda model, *args, **kwargs: clone(template_of(model), *args, **kwargs))


def _layers(parallel: ParallelModel) -> list[keras.Layer]:
    """The inputs, the template, and a layer for each output, by whose name it was merged."""
    inputs = [layer for layer in parallel.template.layers if isinstance(layer, keras.layers.InputLayer)]
    names = parallel.output_names if getattr(parallel.template, "outputs", None) else ["output"]
    return [*inputs, parallel.template, *(keras.layers.Concatenate(axis=0, name=name) for name in names)]


def _get_layer(parallel: ParallelModel, name: str | None = None, index: int | None = None) -> keras.Layer:
    """Return a layer by its place or name. A name may also be that of one of the template's layers."""
    own = index is not None or name in [layer.name for layer in parallel.layers]
    return keras.Model.get_layer(parallel if own else parallel.template, name, index)


def template_of(model: Any) -> Any:
    """Return the template of a parallel model. Another model is its own."""
    return model.template if isinstance(model, ParallelModel) else model
