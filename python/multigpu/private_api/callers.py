"""Find out from the stack why Keras or its backend makes a call."""

import sys
import traceback
from collections.abc import Iterator
from types import FrameType

EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")  # modules that trace functions for a file
SKLEARN = ("keras.src.wrappers.",)  # module that clones models before it trains them
PICKLES = ("keras.src.saving.keras_saveable",)  # module with which `pickle` and `copy` read models and parts
VARIABLES = ("keras.src.backend.", "multigpu.")  # modules that assign variables for others
INPUTS = "keras.src.dtype_policies."  # module that converts inputs to tensors


def called_by(modules: tuple[str, ...]) -> bool:
    """Return whether code of one of these modules makes this call, itself or through others.

    An `ExportArchive` of Keras and `tf.saved_model.save()` are among EXPORTERS, an `SKLearnClassifier` in SKLEARN.
    """
    return any(name.startswith(modules) for name in _modules_from(sys._getframe(2)))


def is_assigned_by_keras() -> bool:
    """Return whether Keras' own code assigns a variable, not a function of the user's that it calls."""
    names = _modules_from(sys._getframe(1))
    return next((name for name in names if not name.startswith(VARIABLES)), "").startswith("keras.")


def is_input_of_layer() -> bool:
    """Return whether Keras makes the call with a layer's input: it is the caller of the caller."""
    return next(_modules_from(sys._getframe(2))).startswith(INPUTS)


def _modules_from(frame: FrameType) -> Iterator[str]:
    """Return the names of the modules whose code runs in a frame, and in those that called it."""
    return (each.f_globals.get("__name__", "") for each, _ in traceback.walk_stack(frame))
