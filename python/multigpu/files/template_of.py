"""What of a model is written and read: the template."""

import keras

from multigpu.parallel import ParallelModel
from multigpu.template import check_model


def template_of(model: keras.Model) -> keras.Model:
    """The template of a parallel model; any other model itself.

    Raises:
        ValueError: it is no model of Keras.
    """
    if isinstance(model, ParallelModel):
        return model.template
    check_model("object", model)
    return model
