"""Find out from the stack why Keras or its backend makes a call."""

import sys

EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")  # modules that trace functions for a file
SKLEARN = ("keras.src.wrappers.",)  # module that clones models before it trains them
INPUTS = "keras.src.dtype_policies."  # module that converts inputs to tensors
PICKLES = ("keras.src.saving.keras_saveable",)


def is_exported() -> bool:
    """Return whether `keras.export.ExportArchive` or `tf.saved_model.save()` makes this call while it traces."""
    return _is_called_by(EXPORTERS)


def is_for_sklearn() -> bool:
    """Return whether one of Keras' wrappers for scikit-learn, such as `SKLearnClassifier`, makes this call."""
    return _is_called_by(SKLEARN)


def is_pickled() -> bool:
    """Return whether this call happens while a model, or one that contains it, is pickled or copied by `copy`."""
    return _is_called_by(PICKLES)


def is_input_of_layer() -> bool:
    """Return whether Keras makes the call with a layer's input: it is the caller of the caller."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(INPUTS)


def _is_called_by(modules: tuple[str, ...]) -> bool:
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            return True
        frame = frame.f_back
    return False
