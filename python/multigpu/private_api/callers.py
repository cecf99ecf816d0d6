"""Find out from the stack why Keras or its backend makes a call."""

import sys

EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")  # modules that trace functions for a file
SKLEARN = ("keras.src.wrappers.",)  # module that clones models before it trains them
PICKLES = ("keras.src.saving.keras_saveable",)  # module with which `pickle` and `copy` read models and parts
VARIABLES = ("keras.src.backend.", "multigpu.")  # modules that assign variables for others
INPUTS = "keras.src.dtype_policies."  # module that converts inputs to tensors


def called_by(modules: tuple[str, ...]) -> bool:
    """Return whether code of one of these modules makes this call, itself or through others.

    An `ExportArchive` of Keras and `tf.saved_model.save()` are among EXPORTERS, an `SKLearnClassifier` in SKLEARN.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            return True
        frame = frame.f_back
    return False


def is_assigned_by_keras() -> bool:
    """Return whether Keras' own code assigns a variable, not a function of the user's that it calls."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(VARIABLES):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").startswith("keras.")


def is_input_of_layer() -> bool:
    """Return whether Keras makes the call with a layer's input: it is the caller of the caller."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(INPUTS)
