"""Find out from the stack why Keras or its backend makes a call."""

import sys

EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")  # modules in which functions are traced for a file
SKLEARN = ("keras.src.wrappers.",)  # in which models are cloned before they are trained
INPUTS = "keras.src.dtype_policies."  # where it converts inputs to tensors
PICKLES = ("keras.src.saving.keras_saveable",)


def is_exported() -> bool:
    """Return whether this call is made by `keras.export.ExportArchive` or `tf.saved_model.save()`, while they trace."""
    return _is_called_by(EXPORTERS)


def is_for_sklearn() -> bool:
    """Whether it is made by one of Keras' wrappers for scikit-learn, such as `keras.wrappers.SKLearnClassifier`."""
    return _is_called_by(SKLEARN)


def is_pickled() -> bool:
    """Return whether it is made while a model, or one around it, is pickled, or copied by Python's `copy`."""
    return _is_called_by(PICKLES)


def is_input_of_layer() -> bool:
    """Return whether the caller of the caller is Keras, with what a layer was called on."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(INPUTS)


def _is_called_by(modules: tuple[str, ...]) -> bool:
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            return True
        frame = frame.f_back
    return False
