"""Names of Keras 2 without a successor of the same meaning. They can be imported, and raise an error when used."""

from collections.abc import Callable
from typing import Any, NoReturn

from multigpu.base.refusal import refuse

GONE = {  # path below `keras` → what to use instead
    "models.model_from_yaml": "`model.to_json()` and `keras.models.model_from_json()`",
    "wrappers.scikit_learn.KerasClassifier": "`keras.wrappers.SKLearnClassifier`",
    "wrappers.scikit_learn.KerasRegressor": "`keras.wrappers.SKLearnRegressor`",
    "backend.learning_phase": "the argument `training` of a layer's `call()`",
    "backend.set_learning_phase": "the argument `training` of a call, as in `model(x, training=False)`",
    "backend.in_train_phase": "the argument `training` of a layer's `call()`",
    "backend.in_test_phase": "the argument `training` of a layer's `call()`",
    "backend.gradients": "`tf.GradientTape`",
    "backend.placeholder": "`keras.Input`",
    "utils.test_utils.get_test_data": "`numpy.random`",
    "utils.test_utils.layer_test": "a call of the layer, and compare what it returns",
    "utils.HDF5Matrix": "`h5py.File(path)[name][start:end]`, which is an array that `fit()` takes",
    "layers.LocallyConnected1D": "a layer of your own: Keras 3 has none",
    "layers.LocallyConnected2D": "a layer of your own: Keras 3 has none",
    "layers.Merge": "`keras.layers.concatenate()`, `keras.layers.add()` or another merging layer",
    "layers.MaxoutDense": "`keras.layers.Dense` and `keras.ops.max()`",
}


def removed_name(path: str, instead: str) -> Callable[..., NoReturn]:
    """Return a placeholder for something that Keras 3 does not have. It raises an error that names the replacement."""

    def placeholder(*args: Any, **kwargs: Any) -> NoReturn:
        raise refuse(
            "a name of Keras 3", f"`{path}`, which Keras 3 does not have", f"Use {instead}.", error=NotImplementedError
        )

    return placeholder
