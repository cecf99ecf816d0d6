"""What of a model is written and read: the template."""

import keras

from multigpu.parallel import ParallelModel


def template_of(model: keras.Model) -> keras.Model:
    """The template of a parallel model; any other model itself.

    Raises:
        ValueError: it is no model of Keras.
    """
    if isinstance(model, ParallelModel):
        return model.template
    if not isinstance(model, keras.Model):
        raise ValueError(f"Expected `object` to be a Keras model. Received: {model!r} of type {type(model).__name__}.")
    return model
