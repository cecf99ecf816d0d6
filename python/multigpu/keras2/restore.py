"""One call that makes the names of Keras 2 work again in this process."""

import keras

from multigpu.base.refusal import refuse
from multigpu.keras2 import (
    backend,
    callbacks,
    compilation,
    constructors,
    files,
    freezing,
    layer_properties,
    log_names,
    modules,
    optimizers,
    parallel_layers,
    tf1_sessions,
    verbs,
)

PARTS = (
    *(tf1_sessions, modules, backend, files, callbacks, constructors, compilation),
    *(layer_properties, parallel_layers, verbs, freezing, optimizers, log_names),
)


def restore_old_names() -> None:
    """Make scripts for Keras 2.0.9 to 2.3 run on Keras 3: old import paths, names and arguments work again.

    `keras.utils.multi_gpu_model` and its aliases in `keras.utils.training_utils`, `keras.utils.multi_gpu_utils`,
    `tensorflow.keras.utils` and `tensorflow.python.keras.utils` are `multigpu.multi_gpu_model`. These work again, too:
    the modules of Keras 2's layers, `fit_generator()` and related functions, `lr` and `decay` of optimizers, `acc` in
    the history, files of any name in HDF5, and the names of TensorFlow 1 that such scripts use;
    `docs/migrate-from-keras2.md` lists them. Names without a successor of the same meaning raise an error that names
    the replacement.

    Call it once, before the script imports Keras, or run an unchanged script with `python -m multigpu run script.py`.
    Importing `multigpu` alone changes nothing. This function changes Keras for the whole process. You cannot undo it,
    and a second call does nothing.

    Raises:
        ValueError: the backend of Keras is not TensorFlow.

    Example:
        >>> import multigpu
        >>> multigpu.restore_old_names()
        >>> from keras.utils import multi_gpu_model
        >>> from keras.layers.core import Dense
    """
    if modules.is_restored():
        return
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise refuse(
            "Keras to run on TensorFlow, for which scripts of Keras 2 were written",
            f"backend {backend!r}",
            "Set the environment variable KERAS_BACKEND=tensorflow before the first `import keras`.",
        )
    for part in PARTS:
        part.restore()
